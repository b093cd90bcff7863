//! The form of one head's operator: encoding, decoding, size and bound.

use super::bound::{Bound, TransitionBound};
use super::cells::Cells;
use super::error::StorageError;
use super::pair::{self, Pair};
use super::{absent, dense, log_sum, residual};
use crate::error::checked_size;
use crate::operator::Operator;
use crate::transition::Transition;

/// How a transition is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TransitionForm {
    /// `e^g·I` as one f32 log-sum. For [`Transition::Scalar`].
    LogScalar,
    /// `diag(e^g)` as K f32 log-sums. For [`Transition::Diagonal`].
    LogDiagonal,
    /// `K·K` cells.
    Dense(Cells),
    /// `γI + D`, for `‖T‖₂ >= 0.5`.
    Residual {
        /// `log γ`, the sum of the head's scalar log-gates, <= 0. Any other value <= 0 is correct too and makes `D`
        /// larger. Used in encoding only.
        log_gamma: f64,
        /// Format of `D`.
        cells: Cells,
    },
    /// Not at all, if `‖T‖₂·head_norm <= bound·‖S‖_F`. Used in encoding only; a transition that is already absent keeps
    /// its record.
    Absent {
        /// Usual norm of this head's incoming states.
        head_norm: f64,
        /// Accepted relative error.
        bound: f64,
    },
}

/// How an operator is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    /// `T` and `S` apart.
    Split {
        /// Form of `T`.
        transition: TransitionForm,
        /// Format of `S`.
        state: Cells,
    },
    /// The factors that `T` and `S` share, for segments shorter than K: see [`Pair`].
    Pair {
        /// Format of the factors.
        cells: Cells,
    },
}

/// Sizes of a stored head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// K.
    pub key_dim: usize,
    /// V.
    pub value_dim: usize,
    /// n of a pair; other forms do not look at it.
    pub tokens: usize,
}

/// What can be stored.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// An operator. It has no pair form.
    Operator(&'a Operator),
    /// The factors of an operator.
    Pair(&'a Pair),
}

impl<'a> From<&'a Operator> for Source<'a> {
    fn from(operator: &'a Operator) -> Self {
        Self::Operator(operator)
    }
}

impl<'a> From<&'a Pair> for Source<'a> {
    fn from(pair: &'a Pair) -> Self {
        Self::Pair(pair)
    }
}

/// One head's operator as bytes, with the bound of what that costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    form: Form,
    shape: Shape,
    bytes: Vec<u8>,
    bound: Bound,
}

impl Stored {
    /// The form.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The sizes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The stored bytes, little-endian: `T`, then `S`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bound, from the norms of the exact operator and the form alone.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// The operator that a device would hold.
    ///
    /// # Errors
    /// Those of [`Form::decode`].
    pub fn decode(&self) -> Result<Operator, StorageError> {
        self.form.decode(self.shape, &self.bytes)
    }
}

/// The last column of a log-scaled operator is a running maximum, which no form may round and no bound here covers.
fn refuse_log_scale(operator: &Operator) -> Result<(), StorageError> {
    if operator.is_log_scaled() {
        return Err(StorageError::WrongForm { form: "split", found: "log-scaled" });
    }
    Ok(())
}

impl Form {
    /// Stores an operator or its factors.
    ///
    /// # Errors
    /// A form that cannot hold this representation, a transition that may not be dropped, a value beyond f32's range.
    pub fn encode<'a>(&self, source: impl Into<Source<'a>>) -> Result<Stored, StorageError> {
        match (*self, source.into()) {
            (Self::Split { transition, state }, Source::Operator(operator)) => {
                refuse_log_scale(operator)?;
                let shape = Shape { key_dim: operator.key_dim(), value_dim: operator.value_dim(), tokens: 0 };
                let mut bytes = Vec::with_capacity(self.bytes(shape));
                transition.encode(operator, &mut bytes)?;
                state.encode(operator.state(), shape.value_dim, &mut bytes)?;
                Ok(Stored { form: *self, shape, bytes, bound: self.bound(operator)? })
            }
            (Self::Split { .. }, Source::Pair(pair)) => self.encode(&pair.operator()?),
            (Self::Pair { cells }, Source::Pair(factors)) => {
                let shape = factors.shape();
                let mut bytes = Vec::with_capacity(self.bytes(shape));
                pair::encode(factors, cells, &mut bytes)?;
                Ok(Stored { form: *self, shape, bytes, bound: pair::bound(factors, cells) })
            }
            (Self::Pair { .. }, Source::Operator(operator)) => Err(pair_needs_factors(operator)),
        }
    }

    /// The bound that [`Self::encode`] would put beside the bytes.
    ///
    /// # Errors
    /// Those of [`Self::encode`], a value out of range excepted.
    pub fn bound<'a>(&self, source: impl Into<Source<'a>>) -> Result<Bound, StorageError> {
        match (*self, source.into()) {
            (Self::Split { transition, state }, Source::Operator(operator)) => {
                refuse_log_scale(operator)?;
                let (norm, error) = state.state_bound(operator.state(), operator.value_dim());
                Ok(Bound::of_parts(transition.bound(operator)?, norm, error))
            }
            (Self::Split { .. }, Source::Pair(pair)) => self.bound(&pair.operator()?),
            (Self::Pair { cells }, Source::Pair(factors)) => Ok(pair::bound(factors, cells)),
            (Self::Pair { .. }, Source::Operator(operator)) => Err(pair_needs_factors(operator)),
        }
    }

    /// The operator that a device would hold.
    ///
    /// # Errors
    /// Sizes that are impossible, a wrong number of bytes, bytes that decode to values that are not finite.
    pub fn decode(&self, shape: Shape, bytes: &[u8]) -> Result<Operator, StorageError> {
        let Shape { key_dim, value_dim, tokens } = shape;
        checked_size("stored T [K, K]", &[key_dim, key_dim])?;
        checked_size("stored S [K, V]", &[key_dim, value_dim])?;
        checked_size("stored factors [n, K + V]", &[tokens, key_dim.saturating_add(value_dim)])?;
        let expected = self.bytes(shape);
        if bytes.len() != expected {
            return Err(StorageError::Bytes { form: self.name(), expected, found: bytes.len() });
        }
        match self {
            Self::Split { transition, state } => {
                let (t, s) = bytes.split_at(transition.bytes(key_dim));
                let state = state.decode(s, value_dim);
                Ok(Operator::new(key_dim, value_dim, transition.decode(t, key_dim)?, state)?)
            }
            Self::Pair { cells } => pair::decode(bytes, shape, *cells)?.operator(),
        }
    }

    /// Bytes of one head; saturates for sizes that cannot be.
    pub fn bytes(&self, shape: Shape) -> usize {
        match self {
            Self::Split { transition, state } => {
                transition.bytes(shape.key_dim).saturating_add(state.bytes(shape.key_dim, shape.value_dim))
            }
            Self::Pair { cells } => pair::bytes(shape, *cells),
        }
    }

    /// Name of the form of `T`, as in error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Split { transition, .. } => transition.name(),
            Self::Pair { .. } => "a pair",
        }
    }
}

impl TransitionForm {
    /// Bytes of a transition; saturates for sizes that cannot be.
    pub fn bytes(&self, key_dim: usize) -> usize {
        match self {
            Self::LogScalar => 4,
            Self::LogDiagonal => key_dim.saturating_mul(4),
            Self::Dense(cells) => cells.bytes(key_dim, key_dim),
            Self::Residual { cells, .. } => cells.bytes(key_dim, key_dim).saturating_add(4),
            Self::Absent { .. } => absent::BYTES,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::LogScalar => "a scalar log-sum",
            Self::LogDiagonal => "diagonal log-sums",
            Self::Dense(_) => "a dense matrix",
            Self::Residual { .. } => "γI + D",
            Self::Absent { .. } => "absent",
        }
    }

    fn encode(&self, operator: &Operator, out: &mut Vec<u8>) -> Result<(), StorageError> {
        let k = operator.key_dim();
        match *self {
            Self::LogScalar | Self::LogDiagonal => log_sum::encode(self.logs(operator)?, out),
            Self::Dense(cells) => dense::encode(&self.matrix(operator)?, k, cells, out),
            Self::Residual { log_gamma, cells } => residual::encode(&self.matrix(operator)?, k, log_gamma, cells, out),
            Self::Absent { head_norm, bound } => absent::encode(operator, head_norm, bound, out),
        }
    }

    fn bound(&self, operator: &Operator) -> Result<TransitionBound, StorageError> {
        let k = operator.key_dim();
        match *self {
            Self::LogScalar | Self::LogDiagonal => self.logs(operator).map(log_sum::bound),
            Self::Dense(cells) => self.matrix(operator).map(|m| dense::bound(&m, k, cells)),
            Self::Residual { log_gamma, cells } => residual::bound(&self.matrix(operator)?, k, log_gamma, cells),
            Self::Absent { head_norm, bound } => absent::bound(operator, head_norm, bound),
        }
    }

    fn decode(&self, bytes: &[u8], key_dim: usize) -> Result<Transition, StorageError> {
        match self {
            Self::LogScalar => Ok(log_sum::decode_scalar(bytes)),
            Self::LogDiagonal => Ok(log_sum::decode_diagonal(bytes)),
            Self::Dense(cells) => Ok(dense::decode(bytes, key_dim, *cells)),
            Self::Residual { cells, .. } => Ok(residual::decode(bytes, key_dim, *cells)),
            Self::Absent { .. } => absent::decode(bytes),
        }
    }

    fn logs<'a>(&self, operator: &'a Operator) -> Result<&'a [f64], StorageError> {
        match (self, operator.transition()) {
            (Self::LogScalar, Transition::Scalar { log }) => Ok(std::slice::from_ref(log)),
            (Self::LogDiagonal, Transition::Diagonal { log }) => Ok(log),
            (_, other) => Err(StorageError::WrongForm { form: self.name(), found: kind(other) }),
        }
    }

    fn matrix(&self, operator: &Operator) -> Result<Vec<f64>, StorageError> {
        match operator.transition() {
            absent @ Transition::Absent(_) => Err(StorageError::WrongForm { form: self.name(), found: kind(absent) }),
            other => Ok(other.to_dense(operator.key_dim())),
        }
    }
}

fn kind(transition: &Transition) -> &'static str {
    match transition {
        Transition::Scalar { .. } => "a scalar",
        Transition::Diagonal { .. } => "a diagonal",
        Transition::Dense { .. } => "dense",
        Transition::Absent(_) => "absent",
    }
}

fn pair_needs_factors(operator: &Operator) -> StorageError {
    StorageError::WrongForm { form: "a pair, which needs the factors", found: kind(operator.transition()) }
}
