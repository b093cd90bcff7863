//! The one list of benches.

use std::sync::Arc;

use seam_device::Device;

use crate::case::Case;
use crate::cases::{
    attention, conv, copy, elementwise, embed, experts, gemm, kv_write, log_gate, norm, recurrence, request, rope,
    router, sample, scan, warm,
};
use crate::error::BenchError;

/// How large a case is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// For software devices and tests: about the sizes of the fixture models.
    #[default]
    Small,
    /// For a GPU: the sizes of one layer of Qwen3.5-9B, passes of 512 rows.
    Real,
}

/// Puts a case of the given name and scale on a device.
type Prepare = fn(&'static str, &Arc<dyn Device>, Scale) -> Result<Case, BenchError>;

/// What every bench of the registry is.
#[derive(Debug)]
pub struct Bench {
    /// Its name, `operation/variant`.
    pub name: &'static str,
    /// What one run does.
    pub what: &'static str,
    pub(crate) shape: fn(Scale) -> String,
    pub(crate) prepare: Prepare,
}

impl Bench {
    /// Its sizes at a scale, in words.
    #[must_use]
    pub fn shape(&self, scale: Scale) -> String {
        (self.shape)(scale)
    }

    /// Whether a device has the kernels it needs; elsewhere it is skipped.
    #[must_use]
    pub fn available(&self, caps: &seam_device::Caps) -> bool {
        !self.name.starts_with("recurrence/") || recurrence::available(self.name, caps)
    }

    /// Puts everything it needs on the device.
    ///
    /// # Errors
    /// What the device or an operation says, such as a missing kernel or too little memory.
    pub fn prepare(&self, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
        (self.prepare)(self.name, device, scale)
    }
}

/// The bench whose GB/s are the bandwidth ceiling of a run.
pub const BANDWIDTH: &str = "copy";

/// The bench whose GFLOP/s are the compute ceiling of a run.
pub const COMPUTE: &str = "gemm/prefill";

/// One recurrence by one method, without and with an operator.
macro_rules! recurrence {
    ($name:expr, $what:literal) => {
        Bench { name: $name, what: $what, shape: |scale| recurrence::shape($name, scale), prepare: recurrence::prepare }
    };
}

/// The list: single benches, then families that have both methods, those that have tiles on tensor cores beside, and those that have only the recurrent one.
macro_rules! registry {
    ([$($bench:expr),* $(,)?], both: [$($both:literal),*], recurrent: [$($alone:literal),*], tile: [$($tile:literal),*]) => {
        &[
            $($bench,)*
            $(
                recurrence!(concat!("recurrence/", $both, "/recurrent"), "a chain from zero over a pass, token by token"),
                recurrence!(
                    concat!("recurrence/", $both, "/recurrent/operator"),
                    "the same, with the operator of what follows the seam"
                ),
                recurrence!(concat!("recurrence/", $both, "/chunk"), "a chain from zero over a pass, in chunks of 16 tokens"),
                recurrence!(
                    concat!("recurrence/", $both, "/chunk/operator"),
                    "the same, with the operator of what follows the seam"
                ),
            )*
            $(
                recurrence!(concat!("recurrence/", $tile, "/tile"), "a chain from zero over a pass, in tiles on tensor cores"),
                recurrence!(
                    concat!("recurrence/", $tile, "/tile/operator"),
                    "the same, with the operator of what follows the seam"
                ),
            )*
            $(
                recurrence!(concat!("recurrence/", $alone, "/recurrent"), "a chain from zero over a pass, token by token"),
                recurrence!(
                    concat!("recurrence/", $alone, "/recurrent/operator"),
                    "the same, with the operator of what follows the seam"
                ),
            )*
        ]
    };
}

/// Every bench. Each kernel of the manifest is launched by at least one of them, which a test holds.
pub static BENCHES: &[Bench] = registry!(
    [
    Bench { name: BANDWIDTH, what: "copies within the device", shape: copy::shape, prepare: copy::prepare },
    Bench {
        name: COMPUTE,
        what: "a pass times the bf16 weights of an MLP projection",
        shape: gemm::prefill_shape,
        prepare: gemm::prefill,
    },
    Bench {
        name: "gemm/decode",
        what: "one row times the same weights",
        shape: gemm::decode_shape,
        prepare: gemm::decode,
    },
    Bench {
        name: "chain/warm",
        what: "the chain of a warm request: head, then seam and operator of each document, then the query",
        shape: warm::shape,
        prepare: warm::prepare,
    },
    Bench {
        name: "attention/prefill",
        what: "causal attention of a pass at the end of one span",
        shape: attention::prefill_shape,
        prepare: attention::prefill,
    },
    Bench {
        name: "attention/spans",
        what: "attention of a warm request's seams and query over cached and fresh spans in five slabs",
        shape: attention::spans_shape,
        prepare: attention::spans,
    },
    Bench {
        name: "conv_silu",
        what: "convolution of two runs with older and cached history, and the tail they leave",
        shape: conv::shape,
        prepare: conv::prepare,
    },
    Bench {
        name: "norm",
        what: "RMS norm, gated RMS norm, l2 norm and norm of heads of a pass",
        shape: norm::shape,
        prepare: norm::prepare,
    },
    Bench {
        name: "elementwise",
        what: "delta-rule gates, sigmoid gate, SwiGLU and sums with factors of a pass",
        shape: elementwise::shape,
        prepare: elementwise::prepare,
    },
    Bench {
        name: "embed",
        what: "embedding of a pass, and gathering the rows that want logits",
        shape: embed::shape,
        prepare: embed::prepare,
    },
    Bench {
        name: "kv_write",
        what: "keys of a pass normalised, rotated and written with the values",
        shape: kv_write::shape,
        prepare: kv_write::prepare,
    },
    Bench {
        name: "log_gate",
        what: "gates of gated linear attention, Kimi delta attention (both kinds) and Mamba-2 of a pass",
        shape: log_gate::shape,
        prepare: log_gate::prepare,
    },
    Bench {
        name: "rope",
        what: "q and k of a pass rotated where they lie, and v added past the recurrence",
        shape: rope::shape,
        prepare: rope::prepare,
    },
    Bench {
        name: "router",
        what: "experts of each row by softmax, and by sigmoid within groups",
        shape: router::shape,
        prepare: router::prepare,
    },
    Bench {
        name: "experts",
        what: "experts of rows: sorted, two products with SwiGLU between them, weighted sum; bf16 and FP8",
        shape: experts::shape,
        prepare: experts::prepare,
    },
    Bench {
        name: "sample",
        what: "tokens of rows of logits, greedily and by draws under every filter",
        shape: sample::shape,
        prepare: sample::prepare,
    },
    Bench {
        name: "scan",
        what: "looking for values that are not finite, and for log-gates above 0",
        shape: scan::shape,
        prepare: scan::prepare,
    },
    Bench {
        name: "request/cold",
        what: "time to the first token of a request with no segment cached (fixture model)",
        shape: request::shape,
        prepare: request::cold,
    },
    Bench {
        name: "request/warm",
        what: "the same with every segment cached",
        shape: request::shape,
        prepare: request::warm,
    },
    Bench {
        name: "decode",
        what: "tokens after the first, one a pass (fixture model)",
        shape: request::decode_shape,
        prepare: request::decode,
    },
],
    both: [
        "linear_attention", "retnet", "lightning", "simple_gla", "mamba2", "gla", "delta_rule", "gated_delta_rule",
        "kda", "gated_delta_product_2", "mamba1", "rg_lru", "hgrn2"
    ],
    recurrent: ["rwkv7", "mlstm"],
    tile: ["linear_attention", "lightning", "mamba2", "delta_rule", "gated_delta_rule"]
);
