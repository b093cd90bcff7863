//! The stack that every architecture fills: embedding, layers of branches, final norm, output head.

use seam_device::Recorder;
use seam_kernels::tables::{LOGITS, ROWS};
use seam_ops::{Blend, Embed, GatherRows, Linear, Operation, Sample, Tensor, Weight};

use super::Stack;
use crate::error::ModelError;
use crate::layers::{Mixer, Norm, Out, PassContext};
use crate::probe::Probe;
use crate::spec::StackSpec;

/// How a branch joins the residual stream `h`.
#[expect(dead_code, reason = "stacks differ in how they join")]
pub(super) enum Join {
    /// `h += f(norm(h))`.
    Before(Norm),
    /// `h += norm(f(h))` (OLMo's attention layers).
    After(Norm),
    /// `n = norm(h); h = alpha·n + beta·f(n)` (MiniMax).
    Instead {
        /// The norm.
        norm: Norm,
        /// What the normalised stream is multiplied by.
        alpha: f32,
        /// What the result is multiplied by.
        beta: f32,
    },
}

/// A mixer, and what its result is multiplied by before it joins.
pub(super) struct Part {
    pub(super) mixer: Box<dyn Mixer>,
    pub(super) scale: f32,
}

impl Part {
    /// A mixer whose result joins as it is.
    pub(super) fn plain(mixer: impl Mixer + 'static) -> Self {
        Self::scaled(mixer, 1.0)
    }

    /// A mixer whose result is multiplied by `scale`.
    pub(super) fn scaled(mixer: impl Mixer + 'static, scale: f32) -> Self {
        Self { mixer: Box::new(mixer), scale }
    }
}

/// Mixers that read the same rows: one, or several side by side whose results are summed.
pub(super) struct Branch {
    pub(super) join: Join,
    pub(super) parts: Vec<Part>,
}

impl Branch {
    /// `h += f(norm(h))` with one mixer.
    pub(super) fn before(norm: Norm, mixer: impl Mixer + 'static) -> Self {
        Self { join: Join::Before(norm), parts: vec![Part::plain(mixer)] }
    }
}

/// A model as a list of layers.
pub(super) struct LayerStack {
    pub(super) spec: StackSpec,
    pub(super) embed: Weight,
    /// What embedded tokens are multiplied by.
    pub(super) embed_scale: f32,
    /// The branches of each layer.
    pub(super) layers: Vec<Vec<Branch>>,
    pub(super) norm: Norm,
    /// Absent when it is tied to the embedding.
    pub(super) head: Option<Weight>,
    /// What logits are multiplied by.
    pub(super) logit_scale: f32,
}

impl LayerStack {
    fn branch(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        (branch, h): (&Branch, &Tensor),
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (caps, rows, work) = (pass.caps, (pass.tables, ROWS), pass.work);
        let x = &work.x.first(pass.shape.rows);
        let aside = work.branch.as_ref().map(|t| t.first(pass.shape.rows));
        let missing = || ModelError::from(crate::layers::missing("scaled"));
        let blend = |x, y, a, b| Blend { rows, x: Some(x), y, a, b, silu: false };
        match &branch.join {
            Join::Before(norm) => norm.record(recorder, caps, rows, h, x)?,
            Join::Instead { norm, alpha, .. } => {
                norm.record(recorder, caps, rows, h, x)?;
                blend(x, h, *alpha, 0.0).record(recorder, caps)?;
            }
            Join::After(norm) => {
                // The mixers read the stream itself; their sum is normalised before it joins.
                let aside = aside.as_ref().ok_or_else(missing)?;
                for (i, part) in branch.parts.iter().enumerate() {
                    part.mixer.record(recorder, pass, h, Out { to: aside, add: i > 0 }, probe)?;
                }
                norm.record(recorder, caps, rows, aside, x)?;
                blend(x, h, 1.0, 1.0).record(recorder, caps)?;
                return Ok(());
            }
        }
        let beta = if let Join::Instead { beta, .. } = branch.join { beta } else { 1.0 };
        for part in &branch.parts {
            let scale = part.scale * beta;
            if scale == 1.0 {
                part.mixer.record(recorder, pass, x, Out { to: h, add: true }, probe)?;
            } else {
                let aside = aside.as_ref().ok_or_else(missing)?;
                part.mixer.record(recorder, pass, x, Out { to: aside, add: false }, probe)?;
                blend(aside, h, scale, 1.0).record(recorder, caps)?;
            }
        }
        Ok(())
    }

    fn logits(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        h: &Tensor,
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (caps, tables, shape, work) = (pass.caps, pass.tables, pass.shape, pass.work);
        let rows = |t: &Tensor| t.first(shape.logits);
        let [last, normed, logits] = [&work.last, &work.last_norm, &work.logits].map(rows);
        GatherRows { tables, x: h, out: &last }.record(recorder, caps)?;
        self.norm.record(recorder, caps, (tables, LOGITS), &last, &normed)?;
        probe.tap(recorder, "final_norm", &normed)?;
        let weight = self.head.as_ref().unwrap_or(&self.embed);
        let rows = (tables, LOGITS);
        Linear { rows, x: &normed, weight, out: &logits, accumulate: false }.record(recorder, caps)?;
        if self.logit_scale != 1.0 {
            Blend { rows, x: None, y: &logits, a: 0.0, b: self.logit_scale, silu: false }.record(recorder, caps)?;
        }
        let (found, to) = if pass.choose {
            let (choices, out) = (work.choices.all(), work.chosen.first(shape.logits));
            Sample { tables, logits: &logits, choices: &choices, out: &out }.record(recorder, caps)?;
            (out.range(), &work.chosen_readback)
        } else {
            (logits.range(), &work.readback)
        };
        let range = to.range(0, found.len).map_err(seam_ops::OpError::from)?;
        recorder.copy(&found, &range)?;
        Ok(())
    }
}

impl Stack for LayerStack {
    fn spec(&self) -> &StackSpec {
        &self.spec
    }

    fn record(
        &self,
        recorder: &mut dyn Recorder,
        pass: &PassContext<'_>,
        probe: &mut dyn Probe,
    ) -> Result<(), ModelError> {
        let (caps, tables) = (pass.caps, pass.tables);
        let h = pass.work.h.first(pass.shape.rows);
        Embed { tables, table: &self.embed, out: &h }.record(recorder, caps)?;
        probe.tap(recorder, "embed", &h)?;
        if self.embed_scale != 1.0 {
            let (rows, b) = ((tables, ROWS), self.embed_scale);
            Blend { rows, x: None, y: &h, a: 0.0, b, silu: false }.record(recorder, caps)?;
        }
        for (i, layer) in self.layers.iter().enumerate() {
            for branch in layer {
                self.branch(recorder, pass, (branch, &h), probe)?;
            }
            probe.tap(recorder, &format!("layer{i}"), &h)?;
        }
        if pass.shape.logits > 0 {
            self.logits(recorder, pass, &h, probe)?;
        }
        Ok(())
    }
}
