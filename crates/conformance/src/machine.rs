//! Which kernels run a recurrence, and the sizes that follow: what chains need to know of it.

use seam_device::{BufferRange, Caps, Recorder};
use seam_kernels::chain::CHAIN;
use seam_kernels::mlstm::MLSTM_CHAIN;
use seam_ops::{Chain, Decay, Form, Mlstm, MlstmChain, OpError, Operation, Recurrence, Tensor, Update};

/// How a recurrence is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Token by token.
    Recurrent,
    /// In chunks of tokens.
    Chunk,
}

impl Method {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Recurrent, Self::Chunk];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Recurrent => "recurrent",
            Self::Chunk => "chunk",
        }
    }
}

/// The kernels of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// The chain kernels.
    Chain {
        /// The recurrence.
        recurrence: Recurrence,
        /// How it is run.
        method: Method,
    },
    /// The kernel of mLSTM.
    Mlstm(Mlstm),
}

/// One launch over the chains of a pass.
pub(crate) struct Launch<'a> {
    pub(crate) tables: &'a BufferRange,
    pub(crate) qkv: &'a Tensor,
    pub(crate) gates: &'a Tensor,
    pub(crate) out: &'a Tensor,
    pub(crate) scratch: Option<&'a BufferRange>,
    pub(crate) launch: (u32, u32, bool),
    pub(crate) slabs: [BufferRange; 4],
}

impl Machine {
    /// Whether a device has the kernels of an update by a method.
    pub(crate) fn runs(caps: &Caps, update: Update, method: Method) -> bool {
        let _ = update;
        match method {
            Method::Recurrent => caps.kernels.contains(CHAIN.id),
            Method::Chunk => false,
        }
    }

    /// Whether a device has the kernel of mLSTM.
    pub(crate) fn runs_mlstm(caps: &Caps, method: Method) -> bool {
        method == Method::Recurrent && caps.kernels.contains(MLSTM_CHAIN.id)
    }

    /// Checks sizes.
    pub(crate) fn check(&self) -> Result<(), OpError> {
        match self {
            Self::Chain { recurrence, .. } => recurrence.check("chain"),
            Self::Mlstm(sizes) => sizes.check("mlstm_chain"),
        }
    }

    /// H·K.
    pub(crate) fn keys(&self) -> u32 {
        match self {
            Self::Chain { recurrence: r, .. } => r.heads * r.key,
            Self::Mlstm(s) => s.heads * s.key,
        }
    }

    /// HV.
    pub(crate) fn heads(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.value_heads,
            Self::Mlstm(sizes) => sizes.value_heads,
        }
    }

    /// Whether one row of gates serves every token.
    pub(crate) fn fixed(&self) -> bool {
        matches!(self, Self::Chain { recurrence, .. } if recurrence.decay == Decay::Fixed)
    }

    /// Whether operators can be moved.
    pub(crate) fn moves(&self) -> bool {
        match self {
            Self::Chain { recurrence, .. } => recurrence.rotation.is_some(),
            Self::Mlstm(sizes) => sizes.rotation.is_some(),
        }
    }

    pub(crate) fn row(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.row(),
            Self::Mlstm(sizes) => sizes.row(),
        }
    }

    pub(crate) fn log_gates(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.log_gates(),
            Self::Mlstm(sizes) => sizes.value_heads,
        }
    }

    pub(crate) fn gate_row(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.gate_row(),
            Self::Mlstm(sizes) => sizes.gate_row(),
        }
    }

    /// Elements of a row of outputs.
    pub(crate) fn out(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.out(),
            Self::Mlstm(sizes) => sizes.out(),
        }
    }

    /// Words of a state.
    pub(crate) fn state(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.state_words(),
            Self::Mlstm(sizes) => sizes.state_words(),
        }
    }

    /// The form of its operators.
    pub(crate) fn form(&self) -> Form {
        match self {
            Self::Chain { recurrence, .. } => recurrence.form(),
            Self::Mlstm(_) => Form::Scalar,
        }
    }

    /// Words of a transition in a form.
    pub(crate) fn form_words(&self, form: Form) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.form_words(form),
            Self::Mlstm(sizes) => sizes.form_words(form),
        }
    }

    /// Words of a slot with an operator.
    pub(crate) fn slot(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.slot_words(true),
            Self::Mlstm(sizes) => sizes.slot_words(true),
        }
    }

    /// Words of what chunks compute before the chains walk.
    pub(crate) fn scratch_words(&self, _rows: u32, _chunks: u32) -> u64 {
        0
    }

    /// Records what needs no state.
    pub(crate) fn prepare(
        &self,
        _tables: &BufferRange,
        (_qkv, _gates): (&Tensor, &Tensor),
        _scratch: &BufferRange,
        _chunks: u32,
        _recorder: &mut dyn Recorder,
        _caps: &Caps,
    ) -> Result<(), OpError> {
        Ok(())
    }

    /// Records one launch.
    pub(crate) fn record(&self, l: &Launch<'_>, recorder: &mut dyn Recorder, caps: &Caps) -> Result<(), OpError> {
        match self {
            Self::Chain { recurrence, .. } => Chain {
                tables: l.tables,
                recurrence: *recurrence,
                qkv: l.qkv,
                gates: l.gates,
                out: l.out,
                launch: l.launch,
                slabs: l.slabs.clone(),
            }
            .record(recorder, caps),
            Self::Mlstm(sizes) => MlstmChain {
                tables: l.tables,
                sizes: *sizes,
                qkv: l.qkv,
                gates: l.gates,
                out: l.out,
                launch: l.launch,
                slabs: l.slabs.clone(),
            }
            .record(recorder, caps),
        }
    }
}
