//! Errors of loading a checkpoint and of forward passes, each in one line.

/// A checkpoint that cannot be used. Names the file, the key or tensor, the expected and the found
/// value.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A required file is missing.
    #[error("{}: not found in {place}", clip(file))]
    MissingFile {
        /// Its name.
        file: String,
        /// The folder or other location that was searched.
        place: String,
    },
    /// Git LFS has not downloaded a file.
    #[error(
        "{}: expected the file, found a pointer of Git LFS: run `git lfs pull` in its folder",
        clip(file)
    )]
    Pointer {
        /// Its name.
        file: String,
    },
    /// A folder contains several GGUF files.
    #[error("{place}: expected one GGUF file, found {found}: name one as the model")]
    ManyFiles {
        /// The folder.
        place: String,
        /// The files.
        found: String,
    },
    /// A folder contains safetensors files, of which none is known to be the whole model.
    #[error(
        "model.safetensors or model.safetensors.index.json: not found in {place}, which has {}",
        clip(found)
    )]
    OtherNames {
        /// The folder.
        place: String,
        /// The files.
        found: String,
    },
    /// A file could not be read.
    #[error("{}: cannot be read: {reason}", clip(file))]
    Unreadable {
        /// Its path.
        file: String,
        /// The operating system's error message.
        reason: String,
    },
    /// The weights exist only as pickle files.
    #[error(
        "{}: pickle files can run code and are not loaded: expected model.safetensors or \
         model.safetensors.index.json",
        clip(file)
    )]
    Pickle {
        /// The file that was found.
        file: String,
    },
    /// A file violates its format.
    #[error("{}: corrupt or truncated: {}", clip(file), clip(reason))]
    Corrupt {
        /// Its name.
        file: String,
        /// The parser's error message.
        reason: String,
    },
    /// A key of a JSON file has an invalid value.
    #[error("{}: {key}: expected {}, found {}", clip(file), clip(expected), clip(found))]
    Key {
        /// The file's name.
        file: String,
        /// The key.
        key: String,
        /// The accepted values.
        expected: String,
        /// The value, or "nothing".
        found: String,
    },
    /// The index names a shard that is not a plain file name.
    #[error(
        "{}: weight_map: expected shards inside the folder, found {:?}",
        clip(file),
        clip(shard)
    )]
    ShardOutside {
        /// The index file's name.
        file: String,
        /// The shard's name in the index.
        shard: String,
    },
    /// A tensor of the architecture is missing.
    #[error("{}: {tensor}: expected a tensor of shape {expected:?}, found none", clip(file))]
    MissingTensor {
        /// The file that should contain it.
        file: String,
        /// Its name.
        tensor: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A tensor has another shape.
    #[error("{}: {tensor}: expected shape {expected:?}, found {}", clip(file), clip(&format!("{found:?}")))]
    Shape {
        /// The file that contains it.
        file: String,
        /// Its name.
        tensor: String,
        /// The shape that follows from the configuration.
        expected: Vec<usize>,
        /// The stored shape.
        found: Vec<usize>,
    },
    /// A tensor has another type than its format or its configuration says.
    #[error("{}: {}: expected the type {expected}, found {found}", clip(file), clip(tensor))]
    TensorType {
        /// The file that contains it.
        file: String,
        /// Its name.
        tensor: String,
        /// The supported types.
        expected: String,
        /// The stored type.
        found: String,
    },
    /// The rows of a matrix are no multiple of a dtype's groups of weights.
    #[error("{tensor}: expected rows of a multiple of {group} weights for {dtype}, found {found}")]
    Group {
        /// The matrix.
        tensor: String,
        /// Weights of a group.
        group: usize,
        /// The dtype's name.
        dtype: &'static str,
        /// Weights of a row.
        found: usize,
    },
    /// A tensor has an unsupported type.
    #[error("{}: {tensor}: expected BF16, F16 or F32, found {found}", clip(file))]
    Dtype {
        /// The file that contains it.
        file: String,
        /// Its name.
        tensor: String,
        /// The stored type.
        found: String,
    },
    /// A tensor contains a NaN or an infinity.
    #[error("{}: {tensor}: expected finite numbers, found {found} at element {index}", clip(file))]
    NotFinite {
        /// The file that contains it.
        file: String,
        /// Its name.
        tensor: String,
        /// The first such value.
        found: f32,
        /// Its index in row-major order.
        index: usize,
    },
    /// A file of filter weights does not consist of two linear layers.
    #[error("{}: {tensor}: expected {expected}, found {found}", clip(file))]
    Filter {
        /// Its name.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// The accepted form.
        expected: &'static str,
        /// The stored form.
        found: String,
    },
    /// A tensor of an adapter or of a quantized matrix has unfit numbers or another name.
    #[error("{}: {}: expected {}, found {}", clip(file), clip(tensor), clip(expected), clip(found))]
    Tensor {
        /// Its file.
        file: String,
        /// The tensor's name.
        tensor: String,
        /// The accepted form.
        expected: String,
        /// The stored form.
        found: String,
    },
    /// An adapter for weights that are not stored in safetensors.
    #[error("adapter: expected a checkpoint in safetensors to merge it into, found a GGUF file")]
    AdapterBase,
    /// The executor could not be set up.
    #[error("executor: {0}")]
    Setup(String),
}

/// Most characters of a text from a file that an error shows.
const SHOWN: usize = 500;

fn clip(text: &str) -> String {
    one_line(text, SHOWN)
}

/// `text` on one line, cut after `most` characters: a file may hold any text of any length.
pub fn one_line(text: &str, most: usize) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = chars.by_ref().take(most).collect();
    if chars.next().is_some() {
        line.push_str("...");
    }
    line
}

/// A failed forward pass outside an executor.
#[derive(Debug, thiserror::Error)]
#[error("forward pass failed: {0}")]
pub struct ForwardError(pub String);
