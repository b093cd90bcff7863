//! Loading the weights of experts: fused over all experts, or a tensor for each.

use seam_device::{DType, HostBytes};
use seam_ops::{ExpertBytes, ExpertWeight};

use crate::error::{ModelError, narrow};
use crate::loader::Loader;
use crate::weights::HostTensor;

/// Bytes for products: bf16 and f32 as stored, other floats widened to f32.
fn widened(tensor: HostTensor, dtype: DType) -> Result<HostBytes, ModelError> {
    if tensor.dtype == dtype {
        return Ok(tensor.bytes);
    }
    Ok(HostBytes::from_vec(bytemuck::cast_slice(&tensor.to_f32()?).to_vec()))
}

/// The dtype in which tensors of these dtypes are kept together.
fn common(mut dtypes: impl Iterator<Item = DType>) -> DType {
    match dtypes.next() {
        Some(first @ (DType::BF16 | DType::F32)) if dtypes.all(|d| d == first) => first,
        _ => DType::F32,
    }
}

impl Loader<'_> {
    /// Weights `[experts, n, k]` from one tensor of that shape.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn experts(&self, name: &str, shape: [usize; 3]) -> Result<ExpertWeight, ModelError> {
        let tensor = self.take(name, &shape)?;
        let dtype = common(std::iter::once(tensor.dtype));
        let bytes = widened(tensor, dtype)?;
        self.expert_weight(name, dtype, shape, ExpertBytes::Whole(&bytes))
    }

    /// Weights `[experts, Σ n, k]` of which expert e has the rows of `<prefix>.<e>.<part>` for each part, a tensor
    /// `[n, k]`, one after the other.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn experts_of_parts(
        &self,
        (prefix, parts): (&str, &[&str]),
        [experts, n, k]: [usize; 3],
    ) -> Result<ExpertWeight, ModelError> {
        let mut tensors = Vec::with_capacity(experts);
        for expert in 0..experts {
            let part = |part: &&str| self.take(&format!("{prefix}.{expert}.{part}"), &[n, k]);
            tensors.push(parts.iter().map(part).collect::<Result<Vec<_>, _>>()?);
        }
        let dtype = common(tensors.iter().flatten().map(|t| t.dtype));
        let widen =
            |parts: Vec<HostTensor>| parts.into_iter().map(|t| widened(t, dtype)).collect::<Result<Vec<_>, _>>();
        let bytes = tensors.into_iter().map(widen).collect::<Result<Vec<_>, _>>()?;
        let name = format!("{prefix}.{}", parts.join(" + "));
        self.expert_weight(&name, dtype, [experts, n * parts.len(), k], ExpertBytes::Pieces(&bytes))
    }

    fn expert_weight(
        &self,
        name: &str,
        dtype: DType,
        [experts, n, k]: [usize; 3],
        bytes: ExpertBytes<'_>,
    ) -> Result<ExpertWeight, ModelError> {
        let (n, k) = (narrow("rows of an expert", n)?, narrow("columns of an expert", k)?);
        let shape = [narrow("experts", experts)?, n, k];
        Ok(ExpertWeight::load(self.device, name, dtype, shape, bytes, None)?)
    }
}
