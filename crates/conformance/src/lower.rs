//! Inputs of a family as the rows that kernels read.
//!
//! What a family says of itself decides everything: its decay and update choose the kernel; a token with several writes
//! becomes as many rows, of which the first has the decay and the last is read; key dims that no kernel has are filled
//! up with zeros. A new family of the algebra needs nothing here.

use seam_algebra::laws::SubjectError;
use seam_algebra::{DecayKind, Family, Inputs, Operator, Run, Sizes, Transition, UpdateKind};
use seam_device::Caps;
use seam_kernels::chain::{KEY_SIZES, LOG_ZERO};
use seam_ops::{Decay, Form, Mlstm, OpError, Recurrence, Rotation, Update};

use crate::chains::{Arrays, Rows, Slot, Stored};
use crate::machine::{Machine, Method};

/// A family on kernels, at given sizes.
#[derive(Clone, Copy)]
pub struct Lowering {
    /// The kernels.
    pub machine: Machine,
    family: &'static dyn Family,
    /// K of the family, and of the kernel.
    key: (usize, usize),
    /// Columns of the state.
    columns: usize,
}

/// Which update runs a family, if a kernel does.
pub(crate) fn update_of(family: &dyn Family) -> Option<Update> {
    match (family.update(), family.extras()) {
        _ if family.log_scaled() => None,
        (UpdateKind::Delta, ["a", "b"]) => Some(Update::RankOne),
        (UpdateKind::Delta, []) => Some(Update::Delta),
        (UpdateKind::Add, []) if family.has_strength() => Some(Update::Strength),
        (UpdateKind::Add, []) => Some(Update::Add),
        _ => None,
    }
}

/// Whether the kernel of mLSTM runs a family.
pub(crate) fn is_mlstm(family: &dyn Family) -> bool {
    family.log_scaled() && family.extras() == ["log_input"]
}

/// Whether a device has kernels for a family by a method.
#[must_use]
pub fn runs(caps: &Caps, family: &dyn Family, method: Method) -> bool {
    match update_of(family) {
        Some(update) => Machine::runs(caps, update, method),
        None => is_mlstm(family) && Machine::runs_mlstm(caps, method),
    }
}

fn refuse(why: impl Into<String>) -> SubjectError {
    SubjectError::NotApplicable { why: why.into() }
}

/// An error of a device or an operation, as a subject reports it.
pub(crate) fn failed(what: &str) -> impl FnOnce(OpError) -> SubjectError {
    move |error| SubjectError::Failed { what: what.to_owned(), source: Box::new(error) }
}

impl Lowering {
    /// The kernels of `family` at `sizes`, for inputs with gates in the layout `decay`.
    ///
    /// # Errors
    /// [`SubjectError::NotApplicable`] where no kernel does it, [`SubjectError::Failed`] for sizes that nothing has.
    pub fn new(
        family: &'static dyn Family,
        sizes: &Sizes,
        decay: DecayKind,
        method: Method,
        rotation: Option<Rotation>,
    ) -> Result<Self, SubjectError> {
        let key = sizes.key_dim;
        let legal = KEY_SIZES.iter().map(|&k| k as usize).find(|&k| k >= key);
        let legal = if is_mlstm(family) { Some(key) } else { legal };
        let Some(padded) = legal else { return Err(refuse(format!("no kernel has {key} key dims"))) };
        if padded != key && family.update() == UpdateKind::Delta {
            return Err(refuse(format!("no kernel has {key} key dims, and a dense transition is not filled up")));
        }
        let decay = match decay {
            DecayKind::None => Decay::None,
            DecayKind::Fixed => Decay::Fixed,
            DecayKind::Scalar => Decay::Scalar,
            DecayKind::Diagonal => Decay::Diagonal,
        };
        let narrow = |n: usize| u32::try_from(n).map_err(|_| refuse(format!("a size of {n}")));
        let (heads, value_heads) = (narrow(sizes.key_heads)?, narrow(sizes.value_heads)?);
        let (key32, value) = (narrow(padded)?, narrow(sizes.value_dim)?);
        let machine = match update_of(family) {
            Some(update) => {
                let recurrence = Recurrence { decay, update, heads, value_heads, key: key32, value, rotation };
                Machine::Chain { recurrence, method }
            }
            None if is_mlstm(family) => {
                Machine::Mlstm(Mlstm { heads, value_heads, key: narrow(key)?, value, rotation })
            }
            None => return Err(refuse(format!("no kernel for {}", family.name()))),
        };
        machine.check().map_err(failed("the sizes"))?;
        Ok(Self { machine, family, key: (key, padded), columns: family.state_columns(sizes.value_dim) })
    }

    /// Rows of one sequence after those in `rows`.
    pub fn push(&self, rows: &mut Rows, x: &Inputs) {
        let (writes, s) = (x.writes, x.sizes);
        let (k, kp) = self.key;
        let widened = |array: &[f64]| widen(array, k, kp);
        // q only at a token's last write, g only at its first.
        let spread = |array: &[f64], width: usize, at: usize| -> Vec<f64> {
            if writes == 1 {
                return array.to_vec();
            }
            let mut out = vec![0.0; array.len() * writes];
            for (t, row) in array.chunks_exact(width.max(1)).enumerate() {
                out[(t * writes + at) * width..][..width].copy_from_slice(row);
            }
            out
        };
        let keys = s.key_heads * kp;
        let q = spread(&widened(&x.q), keys, writes - 1);
        let g = match x.decay {
            DecayKind::None | DecayKind::Fixed => x.g.clone(),
            DecayKind::Scalar => spread(&x.g, s.value_heads, 0),
            DecayKind::Diagonal => spread(&widened(&x.g), s.value_heads * kp, 0),
        };
        let extra = |name: &str| -> Vec<f64> {
            x.extras.iter().find(|e| e.name == name).map(|e| widened(&e.values)).unwrap_or_default()
        };
        let (a, b) = (extra("a"), extra("b"));
        let input = x.extras.iter().find(|e| e.name == "log_input").map_or(&x.beta, |e| &e.values);
        let arrays = Arrays { q: &q, k: &widened(&x.k), v: &x.v, g: &g, beta: input, rank_one: [&a, &b] };
        rows.push(&self.machine, x.scale, &arrays);
        rows.skip = x.skip.iter().map(|&d| d as f32).collect();
    }

    /// Rows of a number of tokens.
    #[must_use]
    pub fn rows(&self, tokens: usize) -> u32 {
        (tokens * self.family.writes()) as u32
    }

    /// The outputs of tokens from those of their rows.
    #[must_use]
    pub fn outputs(&self, o: &[f64], x: &Inputs) -> Vec<f64> {
        let width = x.sizes.value_heads * x.sizes.value_dim;
        let last = o.chunks_exact(width.max(1)).skip(x.writes - 1).step_by(x.writes);
        last.flatten().copied().collect()
    }

    /// A state `[HV, K, columns]` as the kernel keeps it.
    #[must_use]
    pub fn state(&self, state: &[f64]) -> Vec<f32> {
        let wide = widen(state, self.key.0 * self.columns, self.key.1 * self.columns);
        // The log-scale of nothing is below every f32.
        wide.iter().map(|&x| if x < f64::from(f32::MIN) { LOG_ZERO } else { x as f32 }).collect()
    }

    /// And back.
    #[must_use]
    pub fn own_state(&self, state: &[f64]) -> Vec<f64> {
        let (k, kp) = (self.key.0 * self.columns, self.key.1 * self.columns);
        let mut own: Vec<f64> = state.chunks_exact(kp).flat_map(|head| &head[..k]).copied().collect();
        if self.family.log_scaled() {
            let scales = own.iter_mut().skip(self.columns - 1).step_by(self.columns);
            scales.filter(|m| **m <= f64::from(LOG_ZERO)).for_each(|m| *m = seam_algebra::log_scale::LOG_ZERO);
        }
        own
    }

    /// Operators of all heads in one form.
    ///
    /// # Errors
    /// [`SubjectError::NotApplicable`] for a transition of another form; what the algebra refuses.
    pub fn store(&self, operators: &[Operator], moved: i64) -> Result<Stored, SubjectError> {
        let all = |test: &dyn Fn(&Transition) -> bool| operators.iter().all(|o| test(o.transition()));
        let form = if all(&|t| *t == Transition::IDENTITY) {
            Form::Identity
        } else if all(&|t| match t {
            Transition::Absent(_) => true,
            Transition::Scalar { log } => *log <= f64::from(LOG_ZERO),
            _ => false,
        }) {
            Form::Zero
        } else {
            self.machine.form()
        };
        let mut t = Vec::new();
        for operator in operators {
            let (k, kp) = self.key;
            let logs = match (form, operator.transition()) {
                (Form::Dense, transition) => transition.to_dense(k),
                (Form::Scalar, Transition::Scalar { log }) => vec![*log],
                (Form::Scalar, Transition::Absent(_)) => vec![f64::from(LOG_ZERO)],
                (Form::Diagonal, Transition::Scalar { log }) => vec![*log; kp],
                (Form::Diagonal, Transition::Diagonal { log }) => widen(log, k, kp),
                (Form::Diagonal, Transition::Absent(_)) => vec![f64::from(LOG_ZERO); kp],
                (Form::Zero | Form::Identity, _) => Vec::new(),
                (form, transition) => {
                    return Err(refuse(format!("a transition {transition:?} is no {form:?} one")));
                }
            };
            let least = if form == Form::Dense { f32::MIN } else { LOG_ZERO };
            t.extend(logs.into_iter().map(|x| (x as f32).max(least)));
        }
        let s = operators.iter().flat_map(|o| self.state(o.state())).collect();
        Ok(Stored { s, t, form, moved })
    }

    /// What the device makes of stored operators: their rounded numbers.
    ///
    /// # Errors
    /// [`SubjectError::NotApplicable`] for a transition of another form; what the algebra refuses.
    pub fn rounded(&self, operators: &[Operator], stored: &Stored) -> Result<Vec<Operator>, SubjectError> {
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let own = self.own_state(&wide(&stored.s));
        let (k, kp) = self.key;
        let heads = own.chunks_exact(k * self.columns).zip(operators).enumerate();
        let one = |(head, (state, operator)): (usize, (&[f64], &Operator))| {
            let part = |n: usize| wide(&stored.t[head * n..(head + 1) * n]);
            let transition = match stored.form {
                Form::Identity => Transition::IDENTITY,
                Form::Zero => operator.transition().clone(),
                Form::Scalar => Transition::Scalar { log: f64::from(stored.t[head]) },
                Form::Diagonal => Transition::Diagonal { log: part(kp)[..k].to_vec() },
                Form::Dense => Transition::Dense { matrix: part(k * k) },
            };
            let rounded = Operator::new(k, self.columns, transition, state.to_vec())?;
            Ok(if self.family.log_scaled() { rounded.log_scaled() } else { rounded })
        };
        heads.map(one).collect()
    }

    /// The operators that a slot holds.
    ///
    /// # Errors
    /// [`SubjectError::NotApplicable`] for a transition of another form; what the algebra refuses.
    pub fn operators(&self, slot: &Slot) -> Result<Vec<Operator>, SubjectError> {
        let (heads, (k, kp)) = (self.machine.heads() as usize, self.key);
        let own = self.own_state(&slot.s);
        let mut out = Vec::new();
        for (head, state) in own.chunks_exact(k * self.columns).enumerate() {
            let part = |n: usize| slot.t[head * n..(head + 1) * n].to_vec();
            let transition = match self.machine.form() {
                Form::Identity | Form::Zero => Transition::IDENTITY,
                Form::Scalar => Transition::Scalar { log: slot.t[head] },
                Form::Diagonal => Transition::Diagonal { log: part(kp)[..k].to_vec() },
                Form::Dense => Transition::Dense { matrix: part(k * k) },
            };
            let operator = Operator::new(k, self.columns, transition, state.to_vec())?;
            out.push(if self.family.log_scaled() { operator.log_scaled() } else { operator });
        }
        debug_assert_eq!(out.len(), heads);
        Ok(out)
    }

    /// A run of one sequence.
    #[must_use]
    pub fn run(&self, o: &[f64], x: &Inputs, slot: &Slot) -> Run {
        Run { o: self.outputs(o, x), state: self.own_state(&slot.state) }
    }
}

/// Rows of `k` values as rows of `kp`, filled up with zeros.
fn widen(array: &[f64], k: usize, kp: usize) -> Vec<f64> {
    if k == kp {
        return array.to_vec();
    }
    array.chunks_exact(k).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, kp - k))).collect()
}
