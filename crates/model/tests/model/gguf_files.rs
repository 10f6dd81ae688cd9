//! GGUF files in the layout of llama.cpp's converter.

use asynclane_model::{Checkpoint, Files, LoadError, Model, WeightDtype};
use candle_core::quantized::gguf_file::{self, Value as Field};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// llama.cpp's names, and Hugging Face's for each, without `.weight` and `.bias`.
const NAMES: &str = "
token_embd model.transformer.wte model.embed_tokens
output_norm model.transformer.ln_f model.norm
output model.transformer.ff_out lm_head
attn_norm attn_norm input_layernorm
ffn_norm ff_norm post_attention_layernorm
attn_q q_proj
attn_k k_proj
attn_v v_proj
attn_q_norm q_norm
attn_k_norm k_norm
attn_output attn_out o_proj
ffn_gate ff_proj gate_proj
ffn_up up_proj
ffn_down ff_out down_proj
ffn_gate_inp gate
ffn_gate_exps gate_exps
ffn_up_exps up_exps
ffn_down_exps down_exps
rope_freqs rope_freqs
";

pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The tensors of a folder's safetensors in f32.
pub fn tensors(folder: &Path) -> Tensors {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |tensor: &TensorView<'_>| -> Vec<f32> {
        let data = tensor.data();
        match tensor.dtype() {
            Dtype::F32 => data.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect(),
            Dtype::BF16 => {
                let halves = data.as_chunks().0.iter();
                halves
                    .map(|half| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16))
                    .collect()
            }
            other => panic!("{other:?}"),
        }
    };
    let all = file.tensors().into_iter();
    all.map(|(name, tensor)| (name, (tensor.shape().to_vec(), values(&tensor)))).collect()
}

fn renamed(name: &str) -> String {
    let (stem, kind) = name.rsplit_once('.').unwrap();
    let find = |part: &str| {
        let mut names = NAMES.lines().map(|line| line.split(' '));
        let mut line = names.find(|line| line.clone().skip(1).any(|name| name == part));
        line.as_mut().and_then(Iterator::next).unwrap()
    };
    let layers = ["model.transformer.blocks.", "model.layers."];
    match layers.iter().find_map(|layers| stem.strip_prefix(layers)) {
        None => format!("{}.{kind}", find(stem)),
        Some(rest) => {
            let (number, part) = rest.split_once('.').unwrap();
            let part = find(part.rsplit('.').next().unwrap());
            format!("blk.{number}.{part}.{kind}")
        }
    }
}

/// Row i of half j of a head becomes its row 2 i + j, because llama.cpp rotates adjacent elements.
fn interleaved(head: usize, shape: &[usize], values: &[f32]) -> Vec<f32> {
    let columns: usize = shape[1..].iter().product();
    let rows: Vec<&[f32]> = values.chunks(columns).collect();
    let mut out = vec![0.0; values.len()];
    for (row, values) in rows.iter().enumerate() {
        let (first, half, i) = (row / head * head, row % head / (head / 2), row % (head / 2));
        let row_start = (first + 2 * i + half) * columns;
        out[row_start..row_start + columns].copy_from_slice(values);
    }
    out
}

/// A GGUF file in its own folder, removed when dropped.
pub struct File {
    pub folder: PathBuf,
}

impl File {
    /// Writes `tensors`, with matrices in `dtype`.
    pub fn write(
        name: &str,
        metadata: &[(&str, Field)],
        tensors: &Tensors,
        dtype: GgmlDType,
    ) -> Self {
        Self::write_as(name, metadata, tensors, |_| dtype)
    }

    /// Writes `tensors`, with matrices in the types of their llama.cpp names.
    pub fn write_as(
        name: &str,
        metadata: &[(&str, Field)],
        tensors: &Tensors,
        dtype: impl Fn(&str) -> GgmlDType,
    ) -> Self {
        let folder = format!("asynclane-gguf-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let arch = metadata[0].1.to_string().unwrap().clone();
        let head = metadata.iter().find(|(key, _)| *key == "head").unwrap();
        let head = head.1.to_u32().unwrap() as usize;
        let stored = tensors.iter().map(|(name, (shape, values))| {
            let rotated = name.contains("q_proj") || name.contains("k_proj");
            let values = match arch.as_str() {
                "llada" | "llama" if rotated => interleaved(head, shape, values),
                _ => values.clone(),
            };
            let kind = match shape.len() > 1 && !name.contains("mlp.gate.") {
                true => dtype(&renamed(name)),
                false => GgmlDType::F32,
            };
            let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu).unwrap();
            (renamed(name), QTensor::quantize(&tensor, kind).unwrap())
        });
        let stored: Vec<(String, QTensor)> = stored.collect();
        let metadata: Vec<(&str, &Field)> = metadata.iter().map(|(k, v)| (*k, v)).collect();
        let tensors: Vec<(&str, &QTensor)> = stored.iter().map(|(n, t)| (n.as_str(), t)).collect();
        let mut file = std::fs::File::create(folder.join("model.gguf")).unwrap();
        gguf_file::write(&mut file, &metadata, &tensors).unwrap();
        Self { folder }
    }

    pub fn open(&self) -> Result<Model, LoadError> {
        Model::load(self.checkpoint()?.with_dtype(WeightDtype::F32))
    }

    pub fn checkpoint(&self) -> Result<Checkpoint, LoadError> {
        Checkpoint::open(&Files::folder(&self.folder))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The metadata that the converter writes for a configuration, and `head`, which only this test
/// uses.
pub fn metadata(arch: &str, config: &Value) -> Vec<(&'static str, Field)> {
    let key =
        |one: &str, other: &str| config.get(one).or(config.get(other)).cloned().unwrap_or_default();
    let count = |one, other| Field::U32(key(one, other).as_u64().unwrap() as u32);
    let real = |value: &Value| Field::F32(value.as_f64().unwrap() as f32);
    let theta = config.get("rope_theta");
    let theta = theta.unwrap_or_else(|| &config["rope_parameters"]["rope_theta"]);
    let heads = count("n_heads", "num_attention_heads");
    let width = count("d_model", "hidden_size");
    let head = match config.get("head_dim").and_then(Value::as_u64) {
        Some(head) => head as u32,
        None => width.to_u32().unwrap() / heads.to_u32().unwrap(),
    };
    let groups = key("n_kv_heads", "num_key_value_heads").as_u64();
    let groups = groups.map_or(heads.clone(), |groups| Field::U32(groups as u32));
    let feed_forward = count("mlp_hidden_size", "intermediate_size");
    let length = count("max_sequence_length", "max_position_embeddings");
    let fields = vec![
        ("embedding_length", width),
        ("attention.head_count", heads),
        ("attention.head_count_kv", groups),
        ("block_count", count("n_layers", "num_hidden_layers")),
        ("feed_forward_length", feed_forward),
        ("context_length", length),
        ("attention.layer_norm_rms_epsilon", real(&config["rms_norm_eps"])),
        ("rope.freq_base", real(theta)),
        ("vocab_size", count("vocab_size", "vocab_size")),
        ("attention.key_length", Field::U32(head)),
    ];
    let mut all = vec![("general.architecture", Field::String(arch.to_owned()))];
    let full = |key: String| &*String::leak(key);
    all.extend(fields.into_iter().map(|(key, field)| (full(format!("{arch}.{key}")), field)));
    all.push(("head", Field::U32(head)));
    for id in ["mask_token_id", "eos_token_id"] {
        let value = config.get(id).and_then(Value::as_u64);
        let key = full(format!("tokenizer.ggml.{id}"));
        all.extend(value.map(|value| (key, Field::U32(value as u32))));
    }
    all
}
