//! Quantizations that are described in other places than `quantization_config`.

use super::*;

/// A case whose `quantization_config` is moved: its new place and its form there.
fn moved(case: &str, place: &str, form: impl Fn(&mut Value) -> Value) -> Named {
    let (mut config, all) = parts(case);
    let mut stated = config.as_object_mut().unwrap().remove("quantization_config").unwrap();
    let stated = form(&mut stated);
    let (file, text) = match place.ends_with(".json") {
        true => (place, stated.to_string()),
        false => {
            config[place] = stated;
            ("config.json", config.to_string())
        }
    };
    let mut files = files(&config, &all);
    files.insert(file.to_owned(), text.into_bytes());
    files
}

fn without_method(stated: &mut Value) -> Value {
    stated.as_object_mut().unwrap().remove("quant_method");
    stated.take()
}

/// The form of `hf_quant_config.json`.
fn nested(stated: &mut Value) -> Value {
    let (layers, algorithm) = (&stated["quantized_layers"], &stated["quant_algo"]);
    json!({"producer": stated["producer"], "quantization": {"quant_algo": algorithm,
        "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": stated["ignore"],
        "quantized_layers": layers}})
}

/// AutoAWQ's names of keys.
fn autoawq(stated: &mut Value) -> Value {
    json!({"zero_point": stated["zero_point"], "q_group_size": stated["group_size"],
        "w_bit": stated["bits"], "version": "GEMM"})
}

fn cases() -> [(&'static str, Named); 7] {
    [
        ("packed-4", moved("packed-4", "compression_config", Value::take)),
        ("int8", moved("int8", "compression_config", without_method)),
        ("modelopt", moved("modelopt", "hf_quant_config.json", nested)),
        ("modelopt-mixed", moved("modelopt-mixed", "hf_quant_config.json", nested)),
        ("gptq-ordered", moved("gptq-ordered", "quantize_config.json", without_method)),
        ("awq", moved("awq", "quantize_config.json", Value::take)),
        ("awq-64", moved("awq-64", "quant_config.json", autoawq)),
    ]
}

#[test]
fn older_places_have_the_same_meaning() {
    for (case, files) in cases() {
        let found = Checkpoint::open(&Files::memory(files.clone())).expect(case);
        assert_eq!(found.quantization(), quantized(case).quantization(), "{case}");
        let theirs = Model::load(quantized(case)).unwrap();
        assert_eq!(generated(Model::load(found).expect(case)), generated(theirs), "{case}");
        // Before the download of the weights.
        let mut few = files;
        few.remove("model.safetensors");
        let mut planned = Checkpoint::planned_in(&Files::memory(few)).unwrap();
        let config = official::config(&folder(case)).to_string();
        let mut theirs = Checkpoint::planned(&config).unwrap();
        assert_eq!(planned.quantization(), theirs.quantization(), "{case}");
        let [ours, theirs] =
            [&mut planned, &mut theirs].map(|found| found.survey(WeightDtype::Blocks).unwrap());
        assert_eq!(ours, theirs, "{case}");
    }
}

/// Case, place, and settings that are refused.
const REFUSED: &str = r#"
gptq | quantize_config.json | {"bits": 3, "group_size": 128} | quantize_config.json: bits: expected 4 or 8, found 3
gptq | quantize_config.json | {"bits": 4, "quant_method": "hqq"} | quantize_config.json: quant_method: expected one of compressed-tensors, fp8, gptq, awq, modelopt, found "hqq"
awq | quant_config.json | {"w_bit": 4, "q_group_size": 128, "version": "GEMV"} | quant_config.json: version: expected "gemm", found "GEMV"
modelopt | hf_quant_config.json | {"quantization": {"quant_algo": "W4A16_AWQ"}} | hf_quant_config.json: quantization: quant_algo: expected NVFP4, W4A16_NVFP4, FP8, FP8_PER_CHANNEL_PER_TOKEN, MIXED_PRECISION, found "W4A16_AWQ"
int8 | compression_config | {"format": "dense"} | config.json: compression_config: config_groups: expected an object, found nothing
"#;

#[test]
fn older_settings_are_refused_by_file_and_key() {
    for line in REFUSED.trim().lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [case, place, stated, expected] = cells[..] else { panic!("{line}") };
        let files = moved(case, place, |_| serde_json::from_str(stated).unwrap());
        let early = Checkpoint::check_architecture(&Files::memory(files.clone()));
        assert_eq!(refusal(load(files)), expected);
        assert_eq!(refusal(early), expected);
    }
}

#[test]
fn a_file_that_does_not_count_changes_nothing() {
    let (mut config, all) = parts("gptq");
    // The configuration comes first.
    let mut both = files(&config, &all);
    both.insert("quantize_config.json".to_owned(), br#"{"bits": 3}"#.to_vec());
    assert_eq!(generated(load(both).unwrap()), generated(Model::load(quantized("gptq")).unwrap()));
    // Plain weights, beside files that are left over or of other tools.
    config.as_object_mut().unwrap().remove("quantization_config");
    let expanded = std::fs::read(folder("gptq").join("expanded.safetensors")).unwrap();
    let is_plain = |name: &String| !name.contains("_proj.") || name.ends_with(".bias");
    let mut all: Tensors = all.into_iter().filter(|(name, _)| is_plain(name)).collect();
    all.extend(tensors(&expanded));
    for (name, text) in [
        ("quantize_config.json", r#"{"bits": 4, "group_size": 32}"#),
        ("quant_config.json", r#"{"steps": 7}"#),
        (
            "hf_quant_config.json",
            r#"{"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}}"#,
        ),
    ] {
        let mut files = files(&config, &all);
        files.insert(name.to_owned(), text.as_bytes().to_vec());
        let found = Checkpoint::open(&Files::memory(files)).unwrap();
        assert_eq!(found.quantization(), None, "{name}");
        assert_eq!(
            generated(Model::load(found).unwrap()),
            generated(Model::load(plain("gptq")).unwrap()),
            "{name}"
        );
    }
}
