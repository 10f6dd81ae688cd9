//! The rotary frequencies of Llama 3.1 in a GGUF file: divisors in place of keys of the configuration.

use crate::common::{self, refusal};
use crate::gguf_files::{File, Tensors, metadata, tensors};
use crate::official::{self, Case, error};
use asynclane_model::{Candle, Cpu, Host, LoadError, Model, WeightDtype};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value as Field;
use serde_json::{Value, json};

const NAME: &str = "rope_freqs.weight";

/// Llama with scaled frequencies, and its configuration.
fn llama() -> (Case, Value) {
    let case = Case::named("llama-31");
    let config = case.config();
    (case, config)
}

/// The divisors that llama.cpp's converter computes: 1 for fast frequencies, `factor` for slow ones.
fn divisors(config: &Value) -> Vec<f32> {
    let rope = |key: &str| config["rope_parameters"][key].as_f64().unwrap();
    let [low, high] = ["low_freq_factor", "high_freq_factor"].map(rope);
    let head = config["head_dim"].as_u64().unwrap() as u32;
    let divisor = |i: u32| {
        let exponent = f64::from(2 * i) / f64::from(head);
        let wavelength = std::f64::consts::TAU * rope("rope_theta").powf(exponent);
        let turns = rope("original_max_position_embeddings") / wavelength;
        let fast = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - fast) / rope("factor") + fast)) as f32
    };
    (0..head / 2).map(divisor).collect()
}

/// A file in f32 with these divisors, if any, and further metadata.
fn written(name: &str, divisors: Option<Vec<f32>>, more: &[(&'static str, Field)]) -> File {
    let (case, config) = llama();
    let mut all: Tensors = tensors(&case.folder);
    if let Some(divisors) = divisors {
        all.insert(NAME.to_owned(), (vec![divisors.len()], divisors));
    }
    let mut fields = metadata("llama", &config);
    fields.extend_from_slice(more);
    let name = format!("frequencies-{name}");
    File::write_as(&name, &fields, &all, |_| GgmlDType::F32)
}

fn load<B: Host>(backend: B, file: &File) -> Result<Model<B>, LoadError> {
    Model::load_on(backend, file.checkpoint()?.with_dtype(WeightDtype::F32))
}

#[test]
fn divided_frequencies_are_those_of_the_configuration() {
    let (case, config) = llama();
    let divisors = divisors(&config);
    let between = divisors.iter().any(|x| *x > 1.0 && *x < 8.0);
    assert!(between && divisors.contains(&8.0), "{divisors:?}");
    let model = case.model(WeightDtype::F32);
    let want = model.logits(&case.tokens).unwrap();
    let distance = |logits: Vec<f32>| error(&logits, &want, model.info().vocabulary.size);
    let file = written("good", Some(divisors), &[]);
    let ours = load(Cpu::default(), &file).unwrap();
    assert_eq!(ours.warnings(), [] as [&str; 0]);
    assert!(distance(ours.logits(&case.tokens).unwrap()) <= 1e-5);
    let candle = load(Candle::default(), &file).unwrap();
    assert!(distance(candle.logits(&case.tokens).unwrap()) <= 1e-4);
    let plain = load(Cpu::default(), &written("plain", None, &[])).unwrap();
    let off = distance(plain.logits(&case.tokens).unwrap());
    assert!(off > 1e-2, "the frequencies matter: {off}");
}

#[test]
fn other_divisors_and_scalings_are_refused() {
    let refused = |file: &File| refusal(load(Cpu::default(), file));
    let start = "model.gguf: rope_freqs.weight: expected";
    let short = refused(&written("short", Some(vec![1.0; 7]), &[]));
    assert_eq!(short, format!("{start} shape [8], found [7]"));
    let range = "divisors from 0.000001 to 1000000";
    let finite = "finite numbers";
    for (index, wrong, expected, found) in [
        (2, 0.0, range, "0"),
        (7, -1.5, range, "-1.5"),
        (0, 2e6, range, "2000000"),
        (3, f32::NAN, finite, "NaN"),
        (3, f32::INFINITY, finite, "inf"),
    ] {
        let mut divisors = vec![1.0; 8];
        divisors[index] = wrong;
        let error = refused(&written("wrong", Some(divisors), &[]));
        let expected = format!("{start} {expected}, found {found} at element {index}");
        assert_eq!(error, expected);
    }
    let longrope = [("type", Field::String("longrope".to_owned())), ("factor", Field::F32(4.0))];
    let expected = "model.gguf: llama.rope.scaling.type: expected none, linear or yarn (others are read \
                    from rope_freqs.weight only), found \"longrope\"";
    assert_eq!(refused(&scaled("longrope", &longrope)), expected);
    let yarn = [("type", Field::String("yarn".to_owned())), ("factor", Field::F32(4.0))];
    let expected = "model.gguf: rope_scaling: original_max_position_embeddings: expected 1 to 1048576 \
                    positions, found nothing";
    assert_eq!(refused(&scaled("short-yarn", &yarn)), expected);
    let further = [&yarn[..], &[("yarn_ext_factor", Field::F32(0.5))]].concat();
    let expected = "model.gguf: llama.rope.scaling.yarn_ext_factor: expected 1, found 0.5";
    assert_eq!(refused(&scaled("ext", &further)), expected);
    for (kind, factor) in [("none", 4.0), ("linear", 1.0)] {
        let fields = [("type", Field::String(kind.to_owned())), ("factor", Field::F32(factor))];
        let loaded = load(Cpu::default(), &scaled("plain-scaling", &fields));
        assert!(loaded.is_ok(), "{kind} {factor}");
    }
}

/// Llama without its scaling, and with these fields `llama.rope.scaling.*`.
fn scaled(name: &str, fields: &[(&str, Field)]) -> File {
    let key = |key: &str| &*String::leak(format!("llama.rope.scaling.{key}"));
    let fields: Vec<_> = fields.iter().map(|(name, field)| (key(name), field.clone())).collect();
    written(name, None, &fields)
}

/// Fields of a GGUF file give the logits of the keys of a configuration.
#[test]
fn scalings_of_a_file_are_those_of_a_configuration() {
    let text = |text: &str| Field::String(text.to_owned());
    let yarn = [
        ("type", text("yarn")),
        ("factor", Field::F32(4.0)),
        ("original_context_length", Field::U32(16)),
    ];
    let further = [("attn_factor", Field::F32(0.5)), ("yarn_beta_fast", Field::F32(8.0))];
    let linear = [("type", text("linear")), ("factor", Field::F32(4.0))];
    let keys = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16});
    let mut more = keys.clone();
    more["attention_factor"] = json!(0.5 * (0.1 * 4f64.ln() + 1.0));
    more["beta_fast"] = json!(8.0);
    let (case, mut config) = llama();
    config["rope_theta"] = config["rope_parameters"]["rope_theta"].take();
    config["rope_parameters"] = Value::Null;
    let mut all = Vec::new();
    for (name, fields, keys) in [
        ("yarn", yarn.to_vec(), keys),
        ("yarn-further", [&yarn[..], &further].concat(), more),
        ("linear", linear.to_vec(), json!({"rope_type": "linear", "factor": 4.0})),
    ] {
        config["rope_scaling"] = keys;
        let mut files = official::files(&case.folder);
        files.insert("config.json".to_owned(), config.to_string().into_bytes());
        let want = common::load(files).unwrap().logits(&case.tokens).unwrap();
        let file = load(Cpu::default(), &scaled(name, &fields)).unwrap();
        let got = file.logits(&case.tokens).unwrap();
        assert!(error(&got, &want, 47) <= 1e-6, "{name}");
        all.push(want);
    }
    assert!(error(&all[0], &all[1], 47) > 1e-2);
    assert!(error(&all[0], &all[2], 47) > 1e-2);
}
