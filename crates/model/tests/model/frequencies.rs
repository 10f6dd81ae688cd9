//! The rotary frequencies of Llama 3.1 in a GGUF file: divisors in place of keys of the configuration.

use crate::gguf::{File, Tensors, metadata, tensors};
use crate::official::Case;
use asynclane_model::{Candle, Cpu, Host, LoadError, Model, WeightDtype};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value as Field;
use serde_json::Value;

const NAME: &str = "rope_freqs.weight";

/// Llama with scaled frequencies, and its configuration.
fn llama() -> (Case, Value) {
    let mut cases = Case::all().into_iter();
    let case = cases.find(|case| case.name == "llama-31").unwrap();
    let config = std::fs::read(case.folder.join("config.json")).unwrap();
    (case, serde_json::from_slice(&config).unwrap())
}

/// The divisors that llama.cpp's converter computes: 1 for fast frequencies, `factor` for slow ones.
fn divisors(config: &Value) -> Vec<f32> {
    let rope = |key: &str| config["rope_parameters"][key].as_f64().unwrap();
    let (low, high, factor) = (
        rope("low_freq_factor"),
        rope("high_freq_factor"),
        rope("factor"),
    );
    let head = config["head_dim"].as_u64().unwrap() as u32;
    let of = |i: u32| {
        let exponent = f64::from(2 * i) / f64::from(head);
        let wavelength = std::f64::consts::TAU * rope("rope_theta").powf(exponent);
        let turns = rope("original_max_position_embeddings") / wavelength;
        let fast = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - fast) / factor + fast)) as f32
    };
    (0..head / 2).map(of).collect()
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
    File::write_as(&format!("frequencies-{name}"), &fields, &all, |_| {
        GgmlDType::F32
    })
}

fn load<B: Host>(on: B, file: &File) -> Result<Model<B>, LoadError> {
    Model::load_on(on, file.checkpoint()?.with_dtype(WeightDtype::F32))
}

#[test]
fn divided_frequencies_are_those_of_the_configuration() {
    let (case, config) = llama();
    let divisors = divisors(&config);
    assert!(
        divisors.iter().any(|x| *x > 1.0 && *x < 8.0),
        "{divisors:?}"
    );
    assert!(divisors.contains(&8.0), "{divisors:?}");
    let want = case.model(WeightDtype::F32).logits(&case.tokens).unwrap();
    let file = written("good", Some(divisors), &[]);
    let model = load(Cpu::default(), &file).unwrap();
    assert_eq!(model.warnings(), [] as [&str; 0]);
    let near = |got: &[f32], most: f32| {
        let differences = got.iter().zip(&want).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        assert!(largest <= most, "{largest}");
    };
    near(&model.logits(&case.tokens).unwrap(), 1e-5);
    let candle = load(Candle::default(), &file).unwrap();
    near(&candle.logits(&case.tokens).unwrap(), 1e-4);
    let plain = load(Cpu::default(), &written("plain", None, &[])).unwrap();
    let plain = plain.logits(&case.tokens).unwrap();
    let most = plain.iter().zip(&want).map(|(a, b)| (a - b).abs());
    assert!(most.fold(0.0, f32::max) > 1e-2, "the frequencies matter");
}

#[test]
fn other_divisors_and_scalings_are_refused() {
    let refusal = |file: &File| {
        let error = load(Cpu::default(), file).err().expect("refused");
        error.to_string()
    };
    let with = |name: &str, at: usize, wrong: f32| {
        let mut divisors = vec![1.0; 8];
        divisors[at] = wrong;
        refusal(&written(name, Some(divisors), &[]))
    };
    assert_eq!(
        refusal(&written("short", Some(vec![1.0; 7]), &[])),
        "model.gguf: rope_freqs.weight: expected shape [8], found [7]"
    );
    let range = "model.gguf: rope_freqs.weight: expected divisors from 0.000001 to 1000000, found";
    assert_eq!(with("zero", 2, 0.0), format!("{range} 0 at element 2"));
    assert_eq!(with("minus", 7, -1.5), format!("{range} -1.5 at element 7"));
    assert_eq!(
        with("large", 0, 2e6),
        format!("{range} 2000000 at element 0")
    );
    assert_eq!(
        with("nan", 3, f32::NAN),
        "model.gguf: rope_freqs.weight: expected finite numbers, found NaN at element 3"
    );
    assert_eq!(
        with("endless", 3, f32::INFINITY),
        "model.gguf: rope_freqs.weight: expected finite numbers, found inf at element 3"
    );
    let kind = |kind: &str| ("llama.rope.scaling.type", Field::String(kind.to_owned()));
    let factor = |factor| ("llama.rope.scaling.factor", Field::F32(factor));
    assert_eq!(
        refusal(&written("linear", None, &[kind("linear"), factor(4.0)])),
        "model.gguf: llama.rope.scaling.type: expected none (scaled frequencies are read from \
         rope_freqs.weight only), found \"linear\""
    );
    for (name, fields) in [
        ("none", [kind("none"), factor(4.0)]),
        ("one", [kind("linear"), factor(1.0)]),
    ] {
        let file = written(name, None, &fields);
        assert!(load(Cpu::default(), &file).is_ok(), "{name}");
    }
}
