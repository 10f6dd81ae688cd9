//! Why a checkpoint was refused or a forward pass failed, each in one line.

/// A checkpoint that cannot be used; names the file, the key or tensor, what was expected and
/// what was found.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file that must be there is not.
    #[error("{file}: not found in {place}")]
    MissingFile {
        /// Its name.
        file: String,
        /// The folder, or where else it was looked for.
        place: String,
    },
    /// Several files could be the weights.
    #[error("{place}: expected one GGUF file, found {found}: name one as the model")]
    ManyFiles {
        /// The folder.
        place: String,
        /// The files.
        found: String,
    },
    /// A file could not be read.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// Its path.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// Only pickled weights were found.
    #[error(
        "{file}: pickle files can run code and are not loaded: expected model.safetensors or \
         model.safetensors.index.json"
    )]
    Pickle {
        /// The file found.
        file: String,
    },
    /// A file is not what its name says.
    #[error("{file}: corrupt or truncated: {reason}")]
    Corrupt {
        /// Its name.
        file: String,
        /// What the parser said.
        reason: String,
    },
    /// A key of a JSON file has an unusable value.
    #[error("{file}: {key}: expected {expected}, found {found}")]
    Key {
        /// The file's name.
        file: String,
        /// The key.
        key: String,
        /// What would be accepted.
        expected: String,
        /// The value, or "nothing".
        found: String,
    },
    /// The index names a shard that is no plain file name.
    #[error("{file}: weight_map: expected shards inside the folder, found {shard:?}")]
    ShardOutside {
        /// The index file's name.
        file: String,
        /// What it names.
        shard: String,
    },
    /// No file holds a tensor that the architecture needs.
    #[error("{file}: {tensor}: expected a tensor of shape {expected:?}, found none")]
    MissingTensor {
        /// The file that should hold it.
        file: String,
        /// Its name.
        tensor: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A tensor has another shape.
    #[error("{file}: {tensor}: expected shape {expected:?}, found {found:?}")]
    Shape {
        /// The file that holds it.
        file: String,
        /// Its name.
        tensor: String,
        /// The shape the configuration asks for.
        expected: Vec<usize>,
        /// The shape stored.
        found: Vec<usize>,
    },
    /// A tensor has a type that is not read.
    #[error("{file}: {tensor}: expected BF16, F16 or F32, found {found}")]
    Dtype {
        /// The file that holds it.
        file: String,
        /// Its name.
        tensor: String,
        /// The type stored.
        found: String,
    },
    /// A tensor holds a NaN or an infinity.
    #[error("{file}: {tensor}: expected finite numbers, found {found} at element {index}")]
    NotFinite {
        /// The file that holds it.
        file: String,
        /// Its name.
        tensor: String,
        /// The first such value.
        found: f32,
        /// Its index in row-major order.
        index: usize,
    },
    /// A file of filter weights has another form than two linear layers.
    #[error("{file}: {tensor}: expected {expected}, found {found}")]
    Filter {
        /// Its name.
        file: String,
        /// The tensor.
        tensor: String,
        /// What would be accepted.
        expected: &'static str,
        /// What there is.
        found: String,
    },
    /// The executor could not be set up.
    #[error("executor: {0}")]
    Setup(String),
}

/// A forward pass outside the executor that did not happen.
#[derive(Debug, thiserror::Error)]
#[error("forward pass failed: {0}")]
pub struct ForwardError(pub String);
