//! A mixture of experts: `h += scale·(Σ w_e·expert_e(x) + g·shared(x))`, each expert an MLP with or without a gate.

use seam_device::{BufferRange, BufferUse, Device, Recorder};
use seam_kernels::tables::ROWS;
use seam_ops::{
    Activation, ActivationKind, ExpertCombine, ExpertProduct, ExpertSort, ExpertWeight, Linear, OpError, Operation,
    Router, Scoring, Shared, SwiGlu, Tensor, Weight, expert_words,
};

use super::{Mixer, Out, PassContext, missing};
use crate::config::{ExpertActivation, MoeConfig, RouterScoring};
use crate::error::{ModelError, narrow};
use crate::loader::Loader;
use crate::probe::Probe;

/// What a stack needs of the workspace for its experts: the largest of its layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertPlan {
    /// Experts.
    pub experts: u32,
    /// Experts that a row goes to.
    pub top: u32,
    /// Results of the first product of an expert: of its gate and up, where it has both.
    pub first: u32,
    /// Inner width of an expert.
    pub intermediate: u32,
    /// Results of the first product of a shared expert, or 0.
    pub shared_first: u32,
    /// Its inner width, or 0.
    pub shared: u32,
    /// Width of the residual stream.
    pub hidden: u32,
}

impl ExpertPlan {
    /// For layers of these sizes.
    ///
    /// # Errors
    /// [`ModelError::Size`].
    pub fn new(config: &MoeConfig, hidden: usize) -> Result<Self, ModelError> {
        let kind = kind(config.activation);
        let width = |what, n: usize| Ok::<_, ModelError>((narrow(what, n)?, narrow(what, 2 * n)?));
        let (intermediate, _) = width("width of an expert", config.intermediate)?;
        let (shared, _) = width("width of the shared expert", config.shared.map_or(0, |s| s.intermediate))?;
        let plan = Self {
            experts: narrow("experts", config.experts)?,
            top: narrow("experts of a token", config.top)?,
            first: kind.input(intermediate),
            intermediate,
            shared_first: kind.input(shared),
            shared,
            hidden: narrow("hidden size", hidden)?,
        };
        narrow("elements of a token's experts", config.top * plan.widest_of_pair() as usize)?;
        Ok(plan)
    }

    fn widest_of_pair(&self) -> u32 {
        self.first.max(self.hidden)
    }

    /// The widest activation of a row, in elements.
    #[must_use]
    pub fn widest(&self) -> u32 {
        (self.top * self.widest_of_pair()).max(self.shared_first).max(self.experts)
    }
}

/// Activations of mixture-of-experts layers for passes of at most `rows` rows, with k experts each.
pub struct ExpertWork {
    /// `[rows, experts]`.
    pub logits: Tensor,
    /// Chosen experts `[rows, k]` u32.
    pub index: Tensor,
    /// Their weights `[rows, k]`.
    pub weight: Tensor,
    /// The order of the pairs.
    pub groups: BufferRange,
    /// Results of the first product `[rows·k, first]`.
    pub first: Tensor,
    /// After the activation `[rows·k, intermediate]`.
    pub inner: Tensor,
    /// Results of the experts `[rows·k, hidden]`.
    pub out: Tensor,
    /// What the shared expert needs, if there is one.
    pub shared: Option<SharedWork>,
}

/// Activations of a shared expert.
pub struct SharedWork {
    /// Results of the first product `[rows, first]`.
    pub first: Tensor,
    /// After the activation `[rows, intermediate]`.
    pub inner: Tensor,
    /// Its result `[rows, hidden]`.
    pub out: Tensor,
    /// Its gate `[rows, 1]`.
    pub gate: Tensor,
}

impl ExpertWork {
    /// Allocates it.
    ///
    /// # Errors
    /// [`OpError`] if the pairs of a row pass the binding limit, or what the device says.
    pub fn new(device: &dyn Device, plan: &ExpertPlan, rows: u32) -> Result<Self, OpError> {
        let pairs = rows.checked_mul(plan.top).ok_or_else(|| OpError::Shape {
            op: "experts",
            what: format!("{rows} rows with {} experts each", plan.top),
        })?;
        let words = expert_words(pairs, plan.experts);
        let shared = (plan.shared > 0).then(|| -> Result<_, OpError> {
            Ok(SharedWork {
                first: Tensor::new(device, "first of the shared expert", rows, plan.shared_first)?,
                inner: Tensor::new(device, "inner of the shared expert", rows, plan.shared)?,
                out: Tensor::new(device, "shared expert", rows, plan.hidden)?,
                gate: Tensor::new(device, "gate of the shared expert", rows, 1)?,
            })
        });
        Ok(Self {
            logits: Tensor::new(device, "router", rows, plan.experts)?,
            index: Tensor::new(device, "chosen experts", rows, plan.top)?,
            weight: Tensor::new(device, "weights of experts", rows, plan.top)?,
            groups: device.alloc("order of experts", words * 4, BufferUse::Storage)?.all(),
            first: Tensor::new(device, "first of experts", pairs, plan.first)?,
            inner: Tensor::new(device, "inner of experts", pairs, plan.intermediate)?,
            out: Tensor::new(device, "experts", pairs, plan.hidden)?,
            shared: shared.transpose()?,
        })
    }
}

/// Names of the tensors of one kind of MLP, behind a prefix.
#[derive(Clone, Copy, Debug)]
pub struct MlpNames<'a> {
    /// The gate, which is not looked for where the activation has none.
    pub gate: &'a str,
    /// Up.
    pub up: &'a str,
    /// Down.
    pub down: &'a str,
}

impl MlpNames<'_> {
    /// `gate_proj.weight`, `up_proj.weight`, `down_proj.weight`.
    pub const PROJ: MlpNames<'static> =
        MlpNames { gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight" };
    /// `w1.weight`, `w3.weight`, `w2.weight`.
    pub const NUMBERED: MlpNames<'static> = MlpNames { gate: "w1.weight", up: "w3.weight", down: "w2.weight" };

    fn first(&self, activation: ExpertActivation) -> Vec<&str> {
        match activation {
            ExpertActivation::SwiGlu => vec![self.gate, self.up],
            ExpertActivation::Relu2 => vec![self.up],
        }
    }
}

/// Names of the tensors of a mixture-of-experts layer, in full.
#[derive(Clone, Copy, Debug)]
pub struct MoeNames<'a> {
    /// The router, `[experts, hidden]`.
    pub router: &'a str,
    /// The bias of a sigmoid router's choice, `[experts]`; not looked for elsewhere.
    pub bias: &'a str,
    /// Fused experts: gate and up `[experts, first, hidden]`, the gate's rows first, and down `[experts, hidden, intermediate]`.
    /// Taken where the first is there.
    pub fused: Option<(&'a str, &'a str)>,
    /// What stands before an expert's number, and the names behind it.
    pub each: (&'a str, MlpNames<'a>),
    /// What stands before the shared expert's tensors, and the names behind it.
    pub shared: (&'a str, MlpNames<'a>),
    /// Shared expert whose gate and up are one matrix `[first, hidden]`: that, and down. Taken instead of `shared` where the
    /// first is there.
    pub shared_fused: Option<(&'a str, &'a str)>,
    /// The gate of the shared expert, `[1, hidden]`; not looked for where there is none.
    pub shared_gate: &'a str,
}

/// The shared expert.
#[derive(Debug)]
struct SharedMlp {
    /// Gate and up, or one matrix: both, or up alone.
    first: Vec<Weight>,
    down: Weight,
    gate: Option<Weight>,
}

/// One mixture-of-experts layer.
#[derive(Debug)]
pub struct Moe {
    scoring: RouterScoring,
    top: u32,
    kind: ActivationKind,
    scale: f32,
    router: Weight,
    bias: Option<Tensor>,
    first: ExpertWeight,
    down: ExpertWeight,
    shared: Option<SharedMlp>,
}

fn kind(activation: ExpertActivation) -> ActivationKind {
    match activation {
        ExpertActivation::SwiGlu => ActivationKind::SwiGlu,
        ExpertActivation::Relu2 => ActivationKind::Relu2,
    }
}

/// Records `out = x·Wᵀ`.
fn linear(
    recorder: &mut dyn Recorder,
    pass: &PassContext<'_>,
    weight: &Weight,
    x: &Tensor,
    out: &Tensor,
) -> Result<(), OpError> {
    Linear { rows: (pass.tables, ROWS), x, weight, out, accumulate: false }.record(recorder, pass.caps)
}

impl Moe {
    /// Loads a layer of `hidden` wide rows. Its result is multiplied by `scale`.
    ///
    /// # Errors
    /// As [`Loader::matrix`].
    pub fn load(
        l: &Loader<'_>,
        names: &MoeNames<'_>,
        hidden: usize,
        config: &MoeConfig,
        scale: f32,
    ) -> Result<Self, ModelError> {
        let (experts, inner) = (config.experts, config.intermediate);
        let ups = names.each.1.first(config.activation);
        let (first, down) = match names.fused.filter(|(first, _)| l.contains(first)) {
            Some((first, down)) => {
                (l.experts(first, [experts, ups.len() * inner, hidden])?, l.experts(down, [experts, hidden, inner])?)
            }
            None => (
                l.experts_of_parts((names.each.0, &ups), [experts, inner, hidden])?,
                l.experts_of_parts((names.each.0, &[names.each.1.down]), [experts, hidden, inner])?,
            ),
        };
        let bias = match config.scoring {
            RouterScoring::Sigmoid { .. } => Some(l.small(names.bias, &[experts], 1, narrow("experts", experts)?)?),
            _ => None,
        };
        let shared = |shared: crate::config::SharedExpert| -> Result<SharedMlp, ModelError> {
            let (prefix, parts) = names.shared;
            let ups = parts.first(config.activation);
            let inner = shared.intermediate;
            let (first, down) = match names.shared_fused.filter(|(first, _)| l.contains(first)) {
                Some((first, down)) => {
                    (vec![l.matrix(first, ups.len() * inner, hidden)?], l.matrix(down, hidden, inner)?)
                }
                None => {
                    let first = ups.iter().map(|up| l.matrix(&format!("{prefix}.{up}"), inner, hidden));
                    let down = l.matrix(&format!("{prefix}.{}", parts.down), hidden, inner)?;
                    (first.collect::<Result<Vec<_>, _>>()?, down)
                }
            };
            let gate = shared.gated.then(|| l.matrix(names.shared_gate, 1, hidden)).transpose()?;
            Ok(SharedMlp { first, down, gate })
        };
        Ok(Self {
            scoring: config.scoring,
            top: narrow("experts of a token", config.top)?,
            kind: kind(config.activation),
            scale,
            router: l.matrix(names.router, experts, hidden)?,
            bias,
            first,
            down,
            shared: config.shared.map(shared).transpose()?,
        })
    }

    /// How the operation is told to choose.
    fn scoring(&self) -> Result<Scoring<'_>, ModelError> {
        Ok(match (self.scoring, &self.bias) {
            (RouterScoring::Softmax { renormalise }, _) => Scoring::Softmax { renormalise },
            (RouterScoring::ChosenSoftmax, _) => Scoring::ChosenSoftmax,
            (RouterScoring::Sigmoid { groups, keep, renormalise, scale }, Some(bias)) => {
                let (groups, keep) = (narrow("groups of experts", groups)?, narrow("kept groups", keep)?);
                Scoring::Sigmoid { bias, groups, keep, renormalise, scale }
            }
            (RouterScoring::Sigmoid { .. }, None) => return Err(missing("router").into()),
        })
    }

    /// Records the shared expert: its result, and its gate before the sigmoid.
    fn record_shared(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        shared: &SharedMlp,
    ) -> Result<(Tensor, Option<Tensor>), ModelError> {
        let (caps, tables, rows) = (pass.caps, pass.tables, x.rows());
        let work = pass.work.experts.as_ref().and_then(|work| work.shared.as_ref());
        let Some(work) = work else { return Err(missing("shared expert").into()) };
        let width = shared.down.k();
        let inner = work.inner.reshape(rows, width)?;
        let out = work.out.reshape(rows, shared.down.n())?;
        if let [gate, up] = &shared.first[..] {
            let first = work.first.reshape(rows, width)?;
            linear(recorder, pass, gate, x, &inner)?;
            linear(recorder, pass, up, x, &first)?;
            SwiGlu { tables, up: &first, x: &inner }.record(recorder, caps)?;
        } else {
            let first = work.first.reshape(rows, self.kind.input(width))?;
            for only in &shared.first {
                linear(recorder, pass, only, x, &first)?;
            }
            Activation { tables, x: &first, out: &inner, top: 1, kind: self.kind }.record(recorder, caps)?;
        }
        linear(recorder, pass, &shared.down, &inner, &out)?;
        let gate = shared.gate.as_ref().map(|weight| -> Result<Tensor, ModelError> {
            let gate = work.gate.reshape(rows, 1)?;
            linear(recorder, pass, weight, x, &gate)?;
            Ok(gate)
        });
        Ok((out, gate.transpose()?))
    }
}

impl Mixer for Moe {
    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        x: &Tensor,
        out: Out<'_>,
        _: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        // A pass's bucket may be wider than the workspace.
        let (caps, tables, rows) = (pass.caps, pass.tables, x.rows());
        let Some(work) = &pass.work.experts else { return Err(missing("expert").into()) };
        let (pairs, top, groups) = (rows.saturating_mul(self.top), self.top, &work.groups);
        let logits = work.logits.reshape(rows, self.router.n())?;
        let (index, weight) = (work.index.reshape(rows, top)?, work.weight.reshape(rows, top)?);
        linear(recorder, pass, &self.router, x, &logits)?;
        let scoring = self.scoring()?;
        Router { tables, logits: &logits, index: &index, weight: &weight, scoring }.record(recorder, caps)?;
        ExpertSort { tables, index: &index, experts: self.first.experts(), groups }.record(recorder, caps)?;
        let first = work.first.reshape(pairs, self.first.n())?;
        let inner = work.inner.reshape(pairs, self.down.k())?;
        let y = work.out.reshape(pairs, self.down.n())?;
        let product = |x, weight, out| ExpertProduct { tables, index: &index, groups, x, weight, out, column: 0 };
        product(x, &self.first, &first).record(recorder, caps)?;
        Activation { tables, x: &first, out: &inner, top, kind: self.kind }.record(recorder, caps)?;
        product(&inner, &self.down, &y).record(recorder, caps)?;
        let parts = self.shared.as_ref().map(|shared| self.record_shared(recorder, pass, x, shared)).transpose()?;
        let shared = match &parts {
            None => Shared::None,
            Some((out, None)) => Shared::Plain(out),
            Some((out, Some(gate))) => Shared::Gated { out, gate },
        };
        let (scale, out, accumulate) = (self.scale, out.to, out.add);
        ExpertCombine { tables, weight: &weight, y: &y, shared, out, scale, accumulate }.record(recorder, caps)?;
        Ok(())
    }
}
