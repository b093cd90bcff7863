//! The cases of the registry, an operation a file.

pub(crate) mod attention;
pub(crate) mod chain;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod elementwise;
pub(crate) mod embed;
pub(crate) mod experts;
pub(crate) mod gemm;
pub(crate) mod kv_write;
pub(crate) mod log_gate;
pub(crate) mod norm;
pub(crate) mod recurrence;
pub(crate) mod request;
pub(crate) mod rope;
pub(crate) mod router;
pub(crate) mod sample;
pub(crate) mod scan;
pub(crate) mod warm;
