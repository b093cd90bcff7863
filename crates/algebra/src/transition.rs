//! The forms in which a transition `T` is kept.

use crate::absence::Absence;
use crate::error::{AlgebraError, check_finite, check_length, check_log_gates};
use crate::matrix::{matmul, spectral_norm};

/// A transition `T`, `[K, K]` on the key axis, in one of its representations. They say how `T` is stored, not which
/// model it comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// `e^log · I`: the sum of a head's scalar log-gates.
    Scalar {
        /// Natural log of the decay, <= 0. May underflow to an exact 0 when applied.
        log: f64,
    },
    /// `diag(e^log)`: the sums of the log-gates of each key dim.
    Diagonal {
        /// Natural logs, `[K]`, each <= 0.
        log: Vec<f64>,
    },
    /// A full matrix.
    Dense {
        /// `[K, K]`, row-major: row = key dim of the result.
        matrix: Vec<f64>,
    },
    /// Exactly 0, because it no longer matters; the record says why.
    Absent(Absence),
}

impl Transition {
    /// `I`.
    pub const IDENTITY: Self = Self::Scalar { log: 0.0 };

    /// Checks lengths and values for `key_dim`.
    ///
    /// # Errors
    /// A wrong length, a value that is not finite, a log-gate above 0, a bad record.
    pub fn check(&self, key_dim: usize) -> Result<(), AlgebraError> {
        match self {
            Self::Scalar { log } => check_log_gates("log-sum of T", std::slice::from_ref(log)),
            Self::Diagonal { log } => {
                check_length("log-sums of T [K]", key_dim, log.len())?;
                check_log_gates("log-sums of T", log)
            }
            Self::Dense { matrix } => {
                check_length("dense T [K, K]", key_dim * key_dim, matrix.len())?;
                check_finite("dense T", matrix)
            }
            Self::Absent(a) => Absence::new(a.transition_norm, a.state_norm, a.bound).map(|_| ()),
        }
    }

    /// `T · x` for x `[K, n]` row-major. An absent transition gives zeros.
    pub(crate) fn times(&self, x: &[f64], key_dim: usize, n: usize) -> Vec<f64> {
        match self {
            Self::Scalar { log } => {
                let decay = log.exp();
                x.iter().map(|x| decay * x).collect()
            }
            Self::Diagonal { log } => log
                .iter()
                .zip(x.chunks_exact(n))
                .flat_map(|(log, row)| {
                    let decay = log.exp();
                    row.iter().map(move |x| decay * x)
                })
                .collect(),
            Self::Dense { matrix } => matmul(matrix, x, key_dim, key_dim, n),
            Self::Absent(_) => vec![0.0; x.len()],
        }
    }

    /// `T` written out as `[K, K]`; an absent one is all zeros.
    pub fn to_dense(&self, key_dim: usize) -> Vec<f64> {
        if let Self::Dense { matrix } = self {
            return matrix.clone();
        }
        let mut eye = vec![0.0; key_dim * key_dim];
        eye.iter_mut().step_by(key_dim + 1).for_each(|e| *e = 1.0);
        self.times(&eye, key_dim, key_dim)
    }

    /// `‖T‖₂`; for an absent one the recorded norm of what was dropped.
    pub fn norm(&self, key_dim: usize) -> f64 {
        match self {
            Self::Scalar { log } => log.exp(),
            Self::Diagonal { log } => log.iter().fold(f64::MIN, |m, &l| l.max(m)).exp(),
            Self::Dense { matrix } => spectral_norm(matrix, key_dim),
            Self::Absent(a) => a.transition_norm,
        }
    }

    /// `later · earlier` in the smallest representation that is exact, `None` when one of them is absent.
    ///
    /// A diagonal whose sums happen to be equal stays a diagonal: the representation also says that every single step
    /// was a diagonal, which decides whether the state can be rotated.
    pub(crate) fn product(later: &Self, earlier: &Self, key_dim: usize) -> Option<Self> {
        // Two finite sums may add up to -inf; the most negative finite number is the same exact 0 when applied.
        let add = |a: f64, b: f64| (a + b).max(f64::MIN);
        Some(match (later, earlier) {
            (Self::Absent(_), _) | (_, Self::Absent(_)) => return None,
            (Self::Scalar { log: a }, Self::Scalar { log: b }) => Self::Scalar { log: add(*a, *b) },
            (Self::Scalar { log: s }, Self::Diagonal { log }) | (Self::Diagonal { log }, Self::Scalar { log: s }) => {
                Self::Diagonal { log: log.iter().map(|l| add(*l, *s)).collect() }
            }
            (Self::Diagonal { log: a }, Self::Diagonal { log: b }) => {
                Self::Diagonal { log: a.iter().zip(b).map(|(a, b)| add(*a, *b)).collect() }
            }
            (a, Self::Dense { matrix }) => Self::Dense { matrix: a.times(matrix, key_dim, key_dim) },
            (Self::Dense { matrix }, Self::Scalar { log }) => {
                let decay = log.exp();
                Self::Dense { matrix: matrix.iter().map(|x| x * decay).collect() }
            }
            (Self::Dense { matrix }, Self::Diagonal { log }) => {
                let decay: Vec<f64> = log.iter().map(|l| l.exp()).collect();
                Self::Dense {
                    matrix: matrix
                        .chunks_exact(key_dim)
                        .flat_map(|row| row.iter().zip(&decay).map(|(x, d)| x * d))
                        .collect(),
                }
            }
        })
    }
}
