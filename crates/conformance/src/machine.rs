//! Which kernels run a recurrence, and the sizes that follow: what chains need to know of it.

use seam_device::{BufferRange, Caps, Command};
use seam_kernels::chain::CHAIN;
use seam_kernels::chunk::{CHUNK_CHAIN, CHUNK_PREPARE};
use seam_kernels::mlstm::MLSTM_CHAIN;
use seam_kernels::tile::{TILE_CHAIN, TILE_PREPARE};
use seam_ops::{
    Chain, ChunkChain, ChunkPrepare, Decay, Form, Mlstm, MlstmChain, OpError, Operation, Recurrence, Tensor, TileChain,
    TilePrepare, Update, chunk_words, tile_words,
};

/// How a recurrence is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Token by token.
    Recurrent,
    /// In chunks of tokens.
    Chunk,
    /// In tiles on tensor cores, with q and k rounded to bf16; not every recurrence has the form.
    Tile,
}

impl Method {
    /// The forms in f32, which every device is asked for.
    pub const ALL: [Self; 2] = [Self::Recurrent, Self::Chunk];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Recurrent => "recurrent",
            Self::Chunk => "chunk",
            Self::Tile => "tile",
        }
    }
}

/// The kernels of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
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
pub struct Launch<'a> {
    /// Tables of the pass.
    pub tables: &'a BufferRange,
    /// Rows of q, k and v.
    pub qkv: &'a Tensor,
    /// Rows of gates.
    pub gates: &'a Tensor,
    /// Rows of outputs.
    pub out: &'a Tensor,
    /// What chunks left of what needs no state.
    pub scratch: Option<&'a BufferRange>,
    /// Which launch, an upper bound of its chains, and whether any builds an operator.
    pub launch: (u32, u32, bool),
    /// The private slab, then the shared ones.
    pub slabs: [BufferRange; 4],
}

impl Machine {
    /// Whether a device has the kernels of an update by a method.
    #[must_use]
    pub fn runs(caps: &Caps, update: Update, method: Method) -> bool {
        match method {
            Method::Recurrent => caps.kernels.contains(CHAIN.id),
            Method::Chunk => {
                update != Update::RankOne && [&CHUNK_PREPARE, &CHUNK_CHAIN].iter().all(|k| caps.kernels.contains(k.id))
            }
            Method::Tile => {
                update != Update::RankOne && [&TILE_PREPARE, &TILE_CHAIN].iter().all(|k| caps.kernels.contains(k.id))
            }
        }
    }

    /// Whether a device has the kernel of mLSTM.
    #[must_use]
    pub fn runs_mlstm(caps: &Caps, method: Method) -> bool {
        method == Method::Recurrent && caps.kernels.contains(MLSTM_CHAIN.id)
    }

    /// Checks sizes.
    ///
    /// # Errors
    /// [`OpError::Shape`].
    pub fn check(&self) -> Result<(), OpError> {
        match self {
            Self::Chain { recurrence, .. } => recurrence.check("chain"),
            Self::Mlstm(sizes) => sizes.check("mlstm_chain"),
        }
    }

    /// H·K.
    #[must_use]
    pub fn keys(&self) -> u32 {
        match self {
            Self::Chain { recurrence: r, .. } => r.heads * r.key,
            Self::Mlstm(s) => s.heads * s.key,
        }
    }

    /// HV.
    #[must_use]
    pub fn heads(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.value_heads,
            Self::Mlstm(sizes) => sizes.value_heads,
        }
    }

    /// Whether one row of gates serves every token.
    #[must_use]
    pub fn fixed(&self) -> bool {
        matches!(self, Self::Chain { recurrence, .. } if recurrence.decay == Decay::Fixed)
    }

    /// Whether operators can be moved.
    #[must_use]
    pub fn moves(&self) -> bool {
        match self {
            Self::Chain { recurrence, .. } => recurrence.rotation.is_some(),
            Self::Mlstm(sizes) => sizes.rotation.is_some(),
        }
    }

    /// Elements of a row of q, k and v.
    #[must_use]
    pub fn row(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.row(),
            Self::Mlstm(sizes) => sizes.row(),
        }
    }

    /// Elements of g in a row of gates.
    #[must_use]
    pub fn log_gates(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.log_gates(),
            Self::Mlstm(sizes) => sizes.value_heads,
        }
    }

    /// Elements of a row of gates.
    #[must_use]
    pub fn gate_row(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.gate_row(),
            Self::Mlstm(sizes) => sizes.gate_row(),
        }
    }

    /// Elements of a row of outputs.
    #[must_use]
    pub fn out(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.out(),
            Self::Mlstm(sizes) => sizes.out(),
        }
    }

    /// Words of a state.
    #[must_use]
    pub fn state(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.state_words(),
            Self::Mlstm(sizes) => sizes.state_words(),
        }
    }

    /// The form of its operators.
    #[must_use]
    pub fn form(&self) -> Form {
        match self {
            Self::Chain { recurrence, .. } => recurrence.form(),
            Self::Mlstm(_) => Form::Scalar,
        }
    }

    /// Words of a transition in a form.
    #[must_use]
    pub fn form_words(&self, form: Form) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.form_words(form),
            Self::Mlstm(sizes) => sizes.form_words(form),
        }
    }

    /// Words of a slot with an operator.
    #[must_use]
    pub fn slot(&self) -> u32 {
        match self {
            Self::Chain { recurrence, .. } => recurrence.slot_words(true),
            Self::Mlstm(sizes) => sizes.slot_words(true),
        }
    }

    /// Words of what chunks compute before the chains walk.
    #[must_use]
    pub fn scratch_words(&self, rows: u32, chunks: u32) -> u64 {
        match self {
            Self::Chain { recurrence, method: Method::Chunk } => chunk_words(recurrence, rows, chunks),
            Self::Chain { recurrence, method: Method::Tile } => tile_words(recurrence, chunks),
            _ => 0,
        }
    }

    /// The commands of what needs no state, over rows of q, k and v and of gates, into the scratch memory.
    ///
    /// # Errors
    /// As the operations.
    pub fn prepare(
        &self,
        tables: &BufferRange,
        (qkv, gates): (&Tensor, &Tensor),
        work: &BufferRange,
        chunks: u32,
        caps: &Caps,
    ) -> Result<Vec<Command>, OpError> {
        match *self {
            Self::Chain { recurrence, method: Method::Chunk } => {
                planned(&ChunkPrepare { tables, recurrence, qkv, gates, work, chunks }, caps)
            }
            Self::Chain { recurrence, method: Method::Tile } => {
                planned(&TilePrepare { tables, recurrence, qkv, gates, work, chunks }, caps)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The commands of one launch.
    ///
    /// # Errors
    /// As the operations.
    pub fn plan(&self, l: &Launch<'_>, caps: &Caps) -> Result<Vec<Command>, OpError> {
        let (tables, out, launch, slabs) = (l.tables, l.out, l.launch, l.slabs.clone());
        let (qkv, gates) = (l.qkv, l.gates);
        match (*self, l.scratch) {
            (Self::Chain { recurrence, method: Method::Recurrent }, _) => {
                planned(&Chain { tables, recurrence, qkv, gates, out, launch, slabs }, caps)
            }
            (Self::Chain { recurrence, method: Method::Chunk }, Some(work)) => {
                planned(&ChunkChain { tables, recurrence, work, out, launch, slabs }, caps)
            }
            (Self::Chain { recurrence, method: Method::Tile }, Some(work)) => {
                planned(&TileChain { tables, recurrence, qkv, work, out, launch, slabs }, caps)
            }
            (Self::Chain { .. }, None) => {
                Err(OpError::Shape { op: "chunk_chain", what: "no scratch memory".to_owned() })
            }
            (Self::Mlstm(sizes), _) => planned(&MlstmChain { tables, sizes, qkv, gates, out, launch, slabs }, caps),
        }
    }
}

fn planned(operation: &dyn Operation, caps: &Caps) -> Result<Vec<Command>, OpError> {
    operation.check()?;
    operation.plan(caps)
}
