//! The causal depthwise convolution before a recurrence, and what it means for segments.
//!
//! `y[t] = Σ_i w[c, i] · x[t − (k−1) + i]`: a row depends on its k − 1 predecessors, so the first k − 1 rows of a segment
//! depend on the last k − 1 raw rows of whatever came before, its *tail*. From token k − 1 on a segment computed alone holds
//! the very rows it has behind any predecessor.

use crate::error::{AlgebraError, check_finite, check_length, checked_size};
use crate::gates::silu;

/// A causal depthwise convolution followed by SiLU, over `channels` channels with `kernel` taps each.
#[derive(Debug, Clone, PartialEq)]
pub struct CausalConv {
    channels: usize,
    kernel: usize,
    weights: Vec<f64>,
}

impl CausalConv {
    /// `weights` `[channels, kernel]`, the oldest tap first.
    ///
    /// # Errors
    /// No channel, no tap, a wrong length, a weight that is not finite.
    pub fn new(channels: usize, kernel: usize, weights: Vec<f64>) -> Result<Self, AlgebraError> {
        for (what, value) in [("channels", channels), ("kernel", kernel)] {
            if value == 0 {
                return Err(AlgebraError::Dimension { what, value, reason: "must be at least 1" });
            }
        }
        check_length("weights [channels, kernel]", checked_size("weights", &[channels, kernel])?, weights.len())?;
        check_finite("weights", &weights)?;
        Ok(Self { channels, kernel, weights })
    }

    /// Rows that reach outside of a segment: `kernel − 1`.
    pub fn warm_up(&self) -> usize {
        self.kernel - 1
    }

    /// `silu(conv(x))` of raw rows x `[n, channels]` behind `tail`, the last raw rows before them, oldest first. Rows that
    /// `tail` lacks are zero; of a longer one the last `kernel − 1` count.
    ///
    /// # Errors
    /// Lengths that are no whole rows, values that are not finite.
    pub fn run(&self, x: &[f64], tail: &[f64]) -> Result<Vec<f64>, AlgebraError> {
        let (c, before) = (self.channels, self.warm_up());
        for (what, rows) in [("raw rows [n, channels]", x), ("tail [n, channels]", tail)] {
            check_length(what, rows.len() / c * c, rows.len())?;
            check_finite(what, rows)?;
        }
        let there = (tail.len() / c).min(before);
        let mut rows = vec![0.0; (before - there) * c];
        rows.extend_from_slice(&tail[tail.len() - there * c..]);
        rows.extend_from_slice(x);
        let y = |t: usize, ch: usize| -> f64 {
            (0..self.kernel).map(|i| self.weights[ch * self.kernel + i] * rows[(t + i) * c + ch]).sum()
        };
        Ok((0..x.len() / c).flat_map(|t| (0..c).map(move |ch| (t, ch))).map(|(t, ch)| silu(y(t, ch))).collect())
    }

    /// The tail behind raw rows: the last `kernel − 1` of `[older tail ‖ rows]`, or as many as there are. Takes any list of
    /// pieces, oldest first: an older tail, a segment's recomputed rows, its cached interior.
    pub fn tail(&self, pieces: &[&[f64]]) -> Vec<f64> {
        let all = pieces.concat();
        let keep = (self.warm_up() * self.channels).min(all.len());
        all[all.len() - keep..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn goldens_fresh_and_continued() {
        let ops = Golden::open("ops");
        for tokens in [1, 2, 3, 9, 65] {
            for how in ["fresh", "continued"] {
                let get = |name: &str| ops.values(&format!("conv_{how}_t{tokens}/{name}"));
                let conv = CausalConv::new(10, 4, get("w")).unwrap();
                // The file holds tails channel first.
                let turn = |x: &[f64]| (0..30).map(|i| x[i % 10 * 3 + i / 10]).collect::<Vec<_>>();
                let tail = turn(&get("state_in"));
                let y = conv.run(&get("x"), &tail).unwrap();
                // A sum of four products near 1.
                y.iter().zip(get("y")).for_each(|(y, want)| assert!((y - want).abs() < 1e-14));
                assert_eq!(conv.tail(&[&tail, &get("x")]), turn(&get("state_out")));
                if how == "fresh" {
                    assert_eq!(conv.run(&get("x"), &[]).unwrap(), y);
                }
            }
        }
    }

    #[test]
    fn wrong_rows_are_typed_errors() {
        assert!(CausalConv::new(0, 4, vec![]).is_err());
        assert!(CausalConv::new(2, 0, vec![]).is_err());
        assert!(CausalConv::new(2, 2, vec![0.0; 3]).is_err());
        assert!(CausalConv::new(1, 1, vec![f64::NAN]).is_err());
        let conv = CausalConv::new(2, 2, vec![1.0; 4]).unwrap();
        assert!(conv.run(&[1.0], &[]).is_err() && conv.run(&[], &[1.0]).is_err());
        assert!(conv.run(&[1.0, f64::NAN], &[]).is_err());
        assert_eq!(conv.run(&[], &[1.0, 2.0]).unwrap(), [0.0; 0]);
    }
}
