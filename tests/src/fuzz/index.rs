//! The index of sharded safetensors, as loading and the Hub's cache read it, and a shard's header.

use std::borrow::Cow;
use std::sync::LazyLock;

use model::{Checkpoint, Files, WeightDtype};
use serde_json::{Map, Value, json};

use super::{Outcome, Target};

/// The target.
pub const TARGET: Target = Target {
    name: "index",
    run,
    words: "weight_map¦../¦/¦\\\\¦model.safetensors¦data_offsets¦dtype¦F64¦I8",
    memory: 300,
    accepted: 3,
};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The files that an index of the corpus names.
const SHARDS: [&str; 2] = ["a.safetensors", "b.safetensors"];
/// Bytes behind a header.
const DATA: usize = 4 << 10;

/// A configuration with one layer.
static CONFIGURATION: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let config = json!({"architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": 4,
        "n_heads": 2, "n_kv_heads": 2, "n_layers": 1, "mlp_hidden_size": 4, "vocab_size": 8,
        "embedding_size": 8, "max_sequence_length": 16, "mask_token_id": 5, "eos_token_id": 1,
        "weight_tying": false});
    config.to_string().into_bytes()
});

/// A shard with every tensor of that model.
static SHARD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut tensors = vec![("wte".to_owned(), vec![8, 4]), ("ff_out".to_owned(), vec![8, 4])];
    tensors.push(("ln_f".to_owned(), vec![4]));
    let norms = "attn_norm ff_norm".split(' ').map(|part| (part, vec![4]));
    let matrices = "q_proj k_proj v_proj attn_out ff_proj up_proj ff_out".split(' ');
    let layer = norms.chain(matrices.map(|part| (part, vec![4, 4])));
    tensors.extend(layer.map(|(part, shape)| (format!("blocks.0.{part}"), shape)));
    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]});
        header.insert(format!("model.transformer.{name}.weight"), entry);
    }
    file(&Value::Object(header).to_string().into_bytes(), end)
});

/// A safetensors file of a header and zeros.
fn file(header: &[u8], data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.resize(file.len() + data, 0);
    file
}

/// `data` is an index if it names a `weight_map`, the header of a file if it is another JSON object,
/// otherwise a file.
pub fn run(data: &[u8]) -> Outcome {
    let name = b"weight_map";
    let is_index = data.windows(name.len()).any(|part| part == name);
    let mut files: Vec<(&str, Cow<'static, [u8]>)> = vec![(CONFIG, CONFIGURATION.clone().into())];
    if is_index {
        files.push((INDEX, data.to_vec().into()));
        files.extend(SHARDS.map(|name| (name, Cow::Borrowed(SHARD.as_slice()))));
    } else if data.first() == Some(&b'{') {
        files.push((WEIGHTS, file(data, DATA).into()));
    } else {
        files.push((WEIGHTS, data.to_vec().into()));
    }
    let files = Files::memory(files);
    let opened = Checkpoint::open(&files);
    if is_index {
        // The Hub's cache requests the files that loading opens.
        match files.shards() {
            Ok(shards) => assert!(shards.is_sorted()),
            Err(_) => assert!(opened.is_err(), "an index that loading alone accepts"),
        }
    }
    let survey = |mut checkpoint: Checkpoint| checkpoint.survey(WeightDtype::F32);
    Outcome::of(opened.and_then(survey))
}
