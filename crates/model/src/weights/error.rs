//! What can be wrong with weight files.

use std::path::PathBuf;

/// A weight file that cannot be used, and the tensor or file that says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The folder has no weights.
    #[error("{} has neither model.safetensors nor model.safetensors.index.json", dir.display())]
    NotFound {
        /// The folder.
        dir: PathBuf,
    },
    /// A file cannot be read or mapped.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A header is damaged in a way that concerns no single tensor.
    #[error("{} is not a sound safetensors file: {what}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The entry of one tensor in a header is wrong.
    #[error("tensor {tensor} in {}: {what}", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        what: String,
    },
    /// The reference reader refuses a file that passed the checks here.
    #[error("{} is refused by the reference reader: {source}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: safetensors::SafeTensorError,
    },
    /// The index of a sharded checkpoint is damaged.
    #[error("{} is not a sound index: {what}", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The index names a file that does not exist.
    #[error("{} names {shard}, which does not exist", index.display())]
    MissingShard {
        /// The index file.
        index: PathBuf,
        /// The absent file.
        shard: String,
    },
    /// The index places a tensor in a shard that does not hold it.
    #[error("{} places tensor {tensor} in {shard}, which does not hold it", index.display())]
    NotInShard {
        /// The index file.
        index: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: String,
    },
    /// Two shards hold a tensor of one name.
    #[error("tensor {tensor} is in {} and in {}", first.display(), second.display())]
    InTwoShards {
        /// The tensor.
        tensor: String,
        /// One shard.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// There is no tensor of this name.
    #[error("tensor {tensor} is not in {}", origin.display())]
    MissingTensor {
        /// The tensor.
        tensor: String,
        /// The folder or file searched.
        origin: PathBuf,
    },
    /// A tensor has another shape than the configuration asks for.
    #[error("tensor {tensor} in {} has shape {found:?}, but the config asks for {expected:?}", file.display())]
    Shape {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// The shape that the configuration asks for.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor has an element type that Seam does not read.
    #[error("tensor {tensor} in {} has dtype {dtype}, which is not supported", file.display())]
    UnsupportedDtype {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// The name of the type in the file.
        dtype: String,
    },
    /// A tensor of another element type than the operation takes.
    #[error("tensor {tensor} has dtype {found}, but {wanted} is needed")]
    Dtype {
        /// The tensor.
        tensor: String,
        /// The type found.
        found: seam_device::DType,
        /// The types that would do.
        wanted: &'static str,
    },
    /// A weight is NaN or infinite.
    #[error("tensor {tensor} has the value {value} at flat index {index}")]
    NonFinite {
        /// The tensor.
        tensor: String,
        /// Index of the first such element, row-major.
        index: usize,
        /// The element.
        value: f64,
    },
    /// No known naming scheme fits the tensors.
    #[error("{} has no embedding of a known name; looked for {looked_for}", origin.display())]
    NoEmbedding {
        /// The folder or file.
        origin: PathBuf,
        /// The names tried.
        looked_for: String,
    },
    /// Two naming schemes fit, so it is unclear which tensors count.
    #[error("{} has an embedding under both {first} and {second}", origin.display())]
    TwoEmbeddings {
        /// The folder or file.
        origin: PathBuf,
        /// One prefix.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
}
