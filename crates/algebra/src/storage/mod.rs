//! How an operator is stored, and what storing it can cost a composed state.
//!
//! A [`Form`] says how the two parts of one head's operator are kept. [`Form::encode`] gives a [`Stored`]: the bytes,
//! and the [`Bound`] on what they can cost, which holds for every operator and every incoming state. [`Stored::decode`]
//! gives the numbers that a device holds: each is 0 or a normal f32, exactly, so a device that flushes subnormals holds
//! the same ones. What a device then computes with them in f32 is not part of these bounds.
//!
//! | form of `T` | bytes | `ε_T`, bound of `‖T̂ − T‖₂` |
//! |---|---|---|
//! | [`TransitionForm::LogScalar`] | 4 | `γ·expm1(θ)`, `θ = u₂₄\|g\| + 2^-127`, `γ = e^g` |
//! | [`TransitionForm::LogDiagonal`] | 4 K | the largest of the same over the key dims |
//! | [`TransitionForm::Dense`] | cells of `K·K` | `u·‖\|T\|‖₂ + A` |
//! | [`TransitionForm::Residual`] | 4 + cells of `K·K` | `u·‖\|D\|‖₂ + A`, `D = T − γ̂I` |
//! | [`TransitionForm::Absent`] | 24 | `‖T‖₂` |
//! | [`Form::Pair`] | 4 + cells of `n(2K + V)` | `γ̂((2u + u²)·‖\|W\|\|Y\|ᵀ‖₂ + …) + \|γ̂ − γ\|·‖P‖₂`; with `S` |
//!
//! The state has `ε_S = u·‖S‖_F + A` of its [`Cells`] (a pair: `(2u + u²)·‖\|k\|ᵀ\|w\|‖_F + …`). `u` and `A` of the
//! cells stand at [`Cells`], how the parts add up over a chain at [`Bound`], and each derivation in the file of its
//! form.
//!
//! ```
//! use seam_algebra::storage::{Cells, Form, TransitionForm};
//! use seam_algebra::{Operator, Transition};
//!
//! let matrix = vec![0.9, 0.05, -0.02, 0.8];
//! let exact = Operator::new(2, 1, Transition::Dense { matrix }, vec![1.5, -0.3])?;
//! let form = Form::Split { transition: TransitionForm::Dense(Cells::F16), state: Cells::F16 };
//! let stored = form.encode(&exact)?;
//! assert_eq!(stored.bytes().len(), (4 + 2 * 4) + (4 + 2 * 2));
//!
//! // What a chain of 10 such segments can be off by, for an incoming state of norm 1.
//! let bound = stored.bound().repeated(10).error(1.0);
//! let (mut h, mut held) = (vec![0.6, -0.8], vec![0.6, -0.8]);
//! let device = stored.decode()?;
//! for _ in 0..10 {
//!     h = exact.apply(&h)?.strict()?;
//!     held = device.apply(&held)?.strict()?;
//! }
//! let error = (h[0] - held[0]).hypot(h[1] - held[1]);
//! assert!(error > 0.0 && error <= bound);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod absent;
mod bf16;
mod bound;
mod cells;
mod dense;
mod error;
mod f16;
mod f24;
mod f32;
mod form;
mod int16;
mod log_sum;
mod norms;
mod pair;
mod policy;
mod residual;
mod round;
#[cfg(test)]
mod tests;

pub use bound::{Bound, ChainError};
pub use cells::{CellError, Cells};
pub use error::StorageError;
pub use form::{Form, Shape, Source, Stored, TransitionForm};
pub use pair::Pair;
pub use policy::{COMPACT, EXACT, Head, HeadTransition, choose};
