//! Sums with factors.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::blend::{BLEND, BlendParams};

use crate::error::{OpError, ensure};
use crate::operation::{Operation, launch};
use crate::tensor::Tensor;

/// `y ← a·f(x) + b·y`, or `y ← b·y` without an x. A factor of 0 leaves its operand unread.
#[derive(Debug)]
pub struct Blend<'a> {
    /// Tables of the pass, with the header word that holds the number of rows.
    pub rows: (&'a BufferRange, usize),
    /// `[rows, width]`, other memory than `y`.
    pub x: Option<&'a Tensor>,
    /// `[rows, width]`.
    pub y: &'a Tensor,
    /// Factor of f(x); finite, and 0 without an x.
    pub a: f32,
    /// Factor of y; finite.
    pub b: f32,
    /// Whether f is `x·sigmoid(x)` and not the identity.
    pub silu: bool,
}

impl Operation for Blend<'_> {
    fn check(&self) -> Result<(), OpError> {
        let fits = self.x.is_none_or(|x| x.cols() == self.y.cols() && x.rows() >= self.y.rows());
        ensure("blend", fits && (self.x.is_some() || self.a == 0.0), || {
            format!("rows of {:?} into {}, factor {}", self.x.map(Tensor::cols), self.y.cols(), self.a)
        })?;
        ensure("blend", self.a.is_finite() && self.b.is_finite(), || format!("factors {} and {}", self.a, self.b))
    }

    fn plan(&self, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (width, (tables, count)) = (self.y.cols(), self.rows);
        let params = BlendParams { width, count: count as u32, a: self.a, b: self.b };
        // Something must be bound in x's place that is only read.
        let x = self.x.map_or_else(|| tables.clone(), Tensor::range);
        let bindings = vec![tables.clone(), x, self.y.range()];
        let grid = [width.div_ceil(64), self.y.rows(), 1];
        Ok(vec![launch("blend", caps, BLEND.id, vec![u32::from(self.silu)], &params, bindings, grid)?])
    }
}
