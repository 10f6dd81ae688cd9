//! GGUF files of mixtures of experts and of DiffusionGemma, in the layouts of llama.cpp's converter and
//! of its open requests, compared with the same safetensors; models split over several files.

use crate::canvas;
use crate::gguf_files::{Tensors, tensors};
use crate::official::{self, Case, error};
use asynclane_model::{Checkpoint, Cpu, Files, LoadError, Model, WeightDtype};
use candle_core::quantized::gguf_file::{self, Value as Field};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A folder of files, removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Fields = Vec<(String, Field)>;

/// Metadata from JSON: whole numbers are u32, lists are of one type.
fn fields(arch: &str, config: &Value) -> Fields {
    fn field(value: &Value) -> Field {
        match value {
            Value::Bool(flag) => Field::Bool(*flag),
            Value::String(text) => Field::String(text.clone()),
            Value::Array(list) => Field::Array(list.iter().map(field).collect()),
            value => match value.as_u64() {
                Some(number) => Field::U32(number as u32),
                None => Field::F32(value.as_f64().unwrap() as f32),
            },
        }
    }
    let mut all = vec![("general.architecture".to_owned(), Field::String(arch.to_owned()))];
    for (key, value) in config.as_object().unwrap().iter().filter(|(_, value)| !value.is_null()) {
        let outside =
            ["tokenizer.", "split.", "diffusion."].iter().any(|prefix| key.starts_with(prefix));
        let key = if outside { key.clone() } else { format!("{arch}.{key}") };
        all.push((key, field(value)));
    }
    all
}

/// Writes a file; matrices have this type, vectors and what stays f32 in such files are f32.
fn write(path: &Path, fields: &Fields, tensors: &Tensors, dtype: GgmlDType) {
    let exact = ["ffn_gate_inp", "norm", "scale", "exp_probs_b", "rope_freqs"];
    let stored = tensors.iter().map(|(name, (shape, values))| {
        let is_exact = shape.len() < 2 || exact.iter().any(|part| name.contains(part));
        let tensor = Tensor::from_vec(values.clone(), shape.as_slice(), &Device::Cpu).unwrap();
        let dtype = if is_exact { GgmlDType::F32 } else { dtype };
        (name.clone(), QTensor::quantize(&tensor, dtype).unwrap())
    });
    let stored: Vec<(String, QTensor)> = stored.collect();
    let fields: Vec<(&str, &Field)> = fields.iter().map(|(key, value)| (&**key, value)).collect();
    let stored: Vec<(&str, &QTensor)> =
        stored.iter().map(|(name, tensor)| (&**name, tensor)).collect();
    let mut file = std::fs::File::create(path).unwrap();
    gguf_file::write(&mut file, &fields, &stored).unwrap();
}

fn folder(name: &str) -> Folder {
    let name = format!("asynclane-gguf-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}

/// A folder with one file.
fn single(name: &str, fields: &Fields, tensors: &Tensors, dtype: GgmlDType) -> Folder {
    let folder = folder(name);
    write(&folder.0.join("model.gguf"), fields, tensors, dtype);
    folder
}

fn checkpoint(folder: &Folder) -> Result<Checkpoint, LoadError> {
    Checkpoint::open(&Files::folder(&folder.0))
}

/// Renames published tensors with pairs of published and stored parts of names; numbered experts
/// become one tensor for each kind of matrix.
fn renamed(all: &Tensors, names: &[(&str, &str)]) -> Tensors {
    let rename = |name: &str| {
        let mut name =
            name.replace("model.layers.", "blk.").replace("model.decoder.layers.", "blk.");
        for (published, stored) in names {
            name = name.replace(published, stored);
        }
        name
    };
    let mut out = Tensors::new();
    for (name, (shape, values)) in all {
        let numbered = name.split_once(".mlp.experts.").and_then(|(layer, rest)| {
            let (number, matrix) = rest.split_once('.')?;
            Some((layer, number.parse::<usize>().ok()?, matrix.strip_suffix("_proj.weight")?))
        });
        let Some((layer, number, matrix)) = numbered else {
            out.insert(rename(name), (shape.clone(), values.clone()));
            continue;
        };
        let name = rename(&format!("{layer}.ffn_{matrix}_exps.weight"));
        let (dims, stack) = out.entry(name).or_default();
        *dims = vec![dims.first().copied().unwrap_or(0).max(number + 1), shape[0], shape[1]];
        stack.resize(stack.len().max((number + 1) * values.len()), 0.0);
        stack[number * values.len()..][..values.len()].copy_from_slice(values);
    }
    out
}

const LLADA_MOE: [(&str, &str); 12] = [
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
];

const LLADA2: [(&str, &str); 17] = [
    ("model.word_embeddings", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("attention.query_key_value", "attn_qkv"),
    ("attention.dense", "attn_output"),
    ("attention.query_layernorm", "attn_q_norm"),
    ("attention.key_layernorm", "attn_k_norm"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.gate.expert_bias", "exp_probs_b.bias"),
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

fn llada_moe(config: &Value) -> Fields {
    let keys = json!({
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
        "expert_count": config["num_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_feed_forward_length": config["expert_intermediate_size"],
        "tokenizer.ggml.mask_token_id": config["mask_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "diffusion.shift_logits": false,
    });
    fields("llada-moe", &keys)
}

fn llada2(config: &Value) -> Fields {
    let head = config["head_dim"].as_u64().unwrap();
    let part = config["partial_rotary_factor"].as_f64().unwrap();
    let keys = json!({
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head,
        "attention.value_length": head,
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "feed_forward_length": config["intermediate_size"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
        "rope.dimension_count": (part * head as f64) as u64,
        "leading_dense_block_count": config["first_k_dense_replace"],
        "expert_count": config["num_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_shared_count": config["num_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config["moe_intermediate_size"],
        "expert_weights_scale": config["routed_scaling_factor"],
        "expert_weights_norm": true,
        "expert_gating_func": 2,
        "expert_group_count": config["n_group"],
        "expert_group_used_count": config["topk_group"],
        "tokenizer.ggml.mask_token_id": config["mask_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "diffusion.shift_logits": false,
    });
    fields("llada2", &keys)
}

fn assert_same(folder: &Folder, case: &Case) {
    let file = checkpoint(folder).unwrap().with_dtype(WeightDtype::F32);
    let (model, want) = (Model::load(file).unwrap(), case.model(WeightDtype::F32));
    assert_eq!(model.warnings(), [] as [&str; 0], "{}", case.name);
    assert_eq!(model.info(), want.info());
    let logits = |model: &Model| model.logits(&case.tokens).unwrap();
    assert_eq!(logits(&model), logits(&want), "{}", case.name);
}

#[test]
fn mixtures_have_the_logits_of_their_safetensors() {
    let case = Case::named("llada-moe");
    let all = renamed(&tensors(&case.folder), &LLADA_MOE);
    let file = single("llada-moe", &llada_moe(&case.config()), &all, GgmlDType::F32);
    assert_same(&file, &case);
    let case = Case::named("llada2-mini");
    let all = renamed(&tensors(&case.folder), &LLADA2);
    let file = single("llada2", &llada2(&case.config()), &all, GgmlDType::F32);
    assert_same(&file, &case);
}

/// The tensors of a case in three files: metadata in the first, tensors in turn.
fn split(name: &str, case: &Case) -> Folder {
    let all = renamed(&tensors(&case.folder), &LLADA2);
    let folder = folder(name);
    for number in 0..3 {
        let of_part = |index: &usize| index % 3 == number;
        let own = all.iter().enumerate().filter(|(index, _)| of_part(index));
        let own: Tensors = own.map(|(_, (name, tensor))| (name.clone(), tensor.clone())).collect();
        let mut fields = if number == 0 { llada2(&case.config()) } else { Fields::new() };
        for (key, value) in [("no", number), ("count", 3), ("tensors.count", all.len())] {
            fields.push((format!("split.{key}"), Field::U16(value as u16)));
        }
        let name = format!("m-{:05}-of-00003.gguf", number + 1);
        write(&folder.0.join(name), &fields, &own, GgmlDType::F32);
    }
    folder
}

#[test]
fn a_model_of_several_files_is_loaded_whole() {
    let case = Case::named("llada2-mini");
    let folder = split("split", &case);
    assert_same(&folder, &case);
    let path = |name: &str| folder.0.join(name);
    let refused = |name: &str| {
        let opened = Checkpoint::open(&Files::gguf_file(&path(name)));
        opened.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let second = "m-00002-of-00003.gguf";
    assert_eq!(refused("m-00001-of-00003.gguf"), "");
    assert_eq!(refused(second), format!("{second}: split.no: expected 0, found 1"));
    std::fs::copy(path("m-00003-of-00003.gguf"), path(second)).unwrap();
    let error = refused("m-00001-of-00003.gguf");
    assert_eq!(error, format!("{second}: split.no: expected 1, found 2"));
    std::fs::remove_file(path(second)).unwrap();
    let error = refused("m-00001-of-00003.gguf");
    assert!(error.starts_with(&format!("{second}: not found in ")), "{error}");
    std::fs::rename(path("m-00001-of-00003.gguf"), path("other.gguf")).unwrap();
    let expected =
        "other.gguf: split.count: expected a name like NAME-00001-of-00003.gguf, found 3";
    assert_eq!(refused("other.gguf"), expected);
}

const CANVAS: [(&str, &str); 27] = [
    ("model.decoder.embed_tokens", "token_embd"),
    ("model.decoder.norm", "output_norm"),
    ("model.decoder.self_conditioning.pre_norm", "self_cond_pre_norm"),
    ("model.decoder.self_conditioning.gate_proj", "self_cond_gate"),
    ("model.decoder.self_conditioning.up_proj", "self_cond_up"),
    ("model.decoder.self_conditioning.down_proj", "self_cond_down"),
    ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
    ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("router.per_expert_scale", "ffn_down_exps.scale"),
    ("router.proj", "ffn_gate_inp"),
    ("router.scale", "ffn_gate_inp.scale"),
    ("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("experts.down_proj", "ffn_down_exps.weight"),
];

/// DiffusionGemma's tensors and metadata.
fn diffusion_gemma(case: &Path) -> (Fields, Tensors) {
    let config = official::config(case);
    let text = &config["text_config"];
    let layers = text["layer_types"].as_array().unwrap();
    let sliding: Vec<bool> = layers.iter().map(|kind| kind == "sliding_attention").collect();
    let first = sliding.iter().position(|sliding| !sliding).unwrap();
    let full = &text["per_layer_config"][first.to_string()];
    let heads = |sliding: &bool| match sliding {
        true => text["num_key_value_heads"].clone(),
        false => full["num_key_value_heads"].clone(),
    };
    let rope = &text["rope_parameters"];
    let head = full["head_dim"].as_u64().unwrap() as usize;
    let part = rope["full_attention"]["partial_rotary_factor"].as_f64().unwrap();
    let keys = json!({
        "embedding_length": text["hidden_size"],
        "attention.head_count": text["num_attention_heads"],
        "attention.head_count_kv": sliding.iter().map(heads).collect::<Vec<_>>(),
        "attention.key_length": head,
        "attention.key_length_swa": text["head_dim"],
        "attention.sliding_window": text["sliding_window"],
        "attention.sliding_window_pattern": sliding,
        "attention.causal": false,
        "attention.layer_norm_rms_epsilon": text["rms_norm_eps"],
        "block_count": text["num_hidden_layers"],
        "context_length": text["max_position_embeddings"],
        "feed_forward_length": text["intermediate_size"],
        "rope.freq_base": rope["full_attention"]["rope_theta"],
        "rope.freq_base_swa": rope["sliding_attention"]["rope_theta"],
        "expert_count": text["num_experts"],
        "expert_used_count": text["top_k_experts"],
        "expert_feed_forward_length": text["moe_intermediate_size"],
        "final_logit_softcapping": 30.0,
        "diffusion.canvas_length": config["canvas_length"],
        "tokenizer.ggml.eos_token_id": text["eos_token_id"],
    });
    let mut all = tensors(case);
    let scalars: Vec<String> =
        all.keys().filter(|name| name.ends_with(".layer_scalar")).cloned().collect();
    for name in scalars {
        let scalar = all.remove(&name).unwrap();
        let layer = name.rsplit('.').nth(1).unwrap();
        let kind =
            if name.contains("encoder") { "enc_layer_output_scale" } else { "layer_output_scale" };
        all.insert(format!("blk.{layer}.{kind}.weight"), scalar);
    }
    let mut all = renamed(&all, &CANVAS);
    let turning = (part * head as f64 / 2.0) as usize;
    let divisors = (0..head / 2).map(|i| if i < turning { 1.0 } else { 1e30 }).collect();
    all.insert("rope_freqs.weight".to_owned(), (vec![head / 2], divisors));
    (fields("diffusion-gemma", &keys), all)
}

#[test]
fn a_canvas_model_has_the_steps_of_the_official_code() {
    let case = &canvas::Case::all()[0];
    let (fields, all) = diffusion_gemma(case.folder());
    let file = single("canvas", &fields, &all, GgmlDType::F32);
    let open = || checkpoint(&file).unwrap().with_dtype(WeightDtype::F32);
    let (model, want) = (Model::load(open()).unwrap(), Model::load(case.checkpoint()).unwrap());
    assert_eq!(model.warnings(), [] as [&str; 0]);
    assert_eq!(model.info(), want.info());
    let mut executor = canvas::executor(Cpu::default(), open());
    let found = canvas::steps(&mut executor, case);
    assert!(found.iter().all(|error| *error < canvas::TOLERANCE), "{found:?}");
}

/// Every matrix of a quantized file keeps its blocks, and the logits are near those of its numbers.
#[test]
fn quantized_experts_and_heads_keep_their_blocks() {
    let config = json!({"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
        "rope_theta": 1e4, "num_experts": 4, "num_experts_per_tok": 2,
        "expert_intermediate_size": 32, "mask_token_id": 5, "eos_token_id": 1});
    let mut noise = crate::common::Noise(7);
    let mut all = Tensors::new();
    let mut add = |name: String, shape: &[usize]| {
        let count: usize = shape.iter().product();
        let scale = if shape.len() > 1 { 0.2 } else { 1.0 };
        let values =
            (0..count).map(|_| scale * noise.next() + f32::from(u8::from(shape.len() < 2)));
        all.insert(name, (shape.to_vec(), values.collect()));
    };
    add("token_embd.weight".to_owned(), &[40, 64]);
    add("output.weight".to_owned(), &[40, 64]);
    add("output_norm.weight".to_owned(), &[64]);
    for layer in 0..2 {
        for (name, shape) in [
            ("attn_norm", &[64][..]),
            ("ffn_norm", &[64]),
            ("attn_q_norm", &[16]),
            ("attn_k_norm", &[16]),
            ("attn_q", &[64, 64]),
            ("attn_k", &[32, 64]),
            ("attn_v", &[32, 64]),
            ("attn_output", &[64, 64]),
            ("ffn_gate_inp", &[4, 64]),
            ("ffn_gate_exps", &[4, 32, 64]),
            ("ffn_up_exps", &[4, 32, 64]),
            ("ffn_down_exps", &[4, 64, 32]),
        ] {
            add(format!("blk.{layer}.{name}.weight"), shape);
        }
    }
    let file = single("moe-q8", &llada_moe(&config), &all, GgmlDType::Q8_0);
    let tokens: Vec<u32> = (0..24).map(|i| i * 7 % 40).collect();
    let logits = |dtype| {
        let checkpoint = checkpoint(&file).unwrap().with_dtype(dtype);
        Model::load(checkpoint).unwrap().logits(&tokens).unwrap()
    };
    let off = error(&logits(WeightDtype::Blocks), &logits(WeightDtype::F32), 40);
    assert!(off > 0.0 && off < 0.1, "{off}");
}

/// A field, its value, and the error.
#[test]
fn other_files_are_refused_by_field() {
    let case = Case::named("llada2-mini");
    let all = renamed(&tensors(&case.folder), &LLADA2);
    let refused = |key: &str, value: Field| {
        let mut fields = llada2(&case.config());
        fields.retain(|(other, _)| other != key);
        fields.push((key.to_owned(), value));
        let file = single("refused", &fields, &all, GgmlDType::F32);
        let loaded = checkpoint(&file).and_then(Model::load);
        loaded.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let error = refused("llada2.expert_gating_func", Field::U32(1));
    assert_eq!(error, "model.gguf: llada2.expert_gating_func: expected 2, found 1");
    let error = refused("llada2.expert_weights_norm", Field::Bool(false));
    assert_eq!(error, "model.gguf: llada2.expert_weights_norm: expected true, found false");
    let case = &canvas::Case::all()[0];
    let (good, tensors) = diffusion_gemma(case.folder());
    let refused = |key: &str, value: Field| {
        let mut fields = good.clone();
        fields.retain(|(other, _)| other != key);
        fields.push((key.to_owned(), value));
        let file = single("canvas-refused", &fields, &tensors, GgmlDType::F32);
        checkpoint(&file).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let pattern = "diffusion-gemma.attention.sliding_window_pattern";
    let error = refused(pattern, Field::Array(vec![Field::Bool(true)]));
    let expected =
        format!("model.gguf: {pattern}: expected true or false for each of 3 layers, found a list");
    assert_eq!(error, expected);
    let count = "diffusion-gemma.block_count";
    let error = refused(count, Field::U32(1 << 30));
    let expected = format!("{count}: expected at most {}, the number of tensors", tensors.len());
    assert!(error.contains(&expected), "{error}");
}
