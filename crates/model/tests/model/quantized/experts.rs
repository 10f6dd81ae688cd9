//! Experts that their publishers quantized.

use super::*;

/// Integers for a matrix of F32 `[rows, columns]`, their scales, and the numbers that both stand for.
fn integers(bytes: &[u8], rows: usize) -> [Tensor; 3] {
    let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    let columns = numbers.len() / rows;
    let (mut codes, mut scales, mut expanded) = (Vec::new(), Vec::new(), Vec::new());
    for row in numbers.chunks(columns) {
        let scale = row.iter().fold(0.01f32, |most, x| most.max(x.abs())) / 126.9;
        let scale = half::f16::from_f32(scale).to_f32();
        scales.extend(scale.to_le_bytes());
        for code in row.iter().map(|x| (x / scale).round() as i8) {
            codes.push(code.cast_unsigned());
            expanded.extend((f32::from(code) * scale).to_le_bytes());
        }
    }
    let shape = vec![rows, columns];
    let scales = (Dtype::F32, vec![rows, 1], scales);
    [(Dtype::I8, shape.clone(), codes), scales, (Dtype::F32, shape, expanded)]
}

#[test]
fn experts_are_expanded_and_routers_need_not_be_listed() {
    let case = official::Case::named("qwen3-moe");
    let mut config = case.config();
    let mut stored = tensors(&std::fs::read(case.folder.join("model.safetensors")).unwrap());
    let mut plain = stored.clone();
    let linear = stored.keys().filter(|name| name.ends_with("_proj.weight")).cloned();
    for name in linear.collect::<Vec<_>>() {
        let (dtype, shape, bytes) = stored.remove(&name).unwrap();
        assert_eq!(dtype, Dtype::F32);
        let [codes, scales, expanded] = integers(&bytes, shape[0]);
        stored.extend([(name.clone(), codes), (format!("{name}_scale"), scales)]);
        plain.insert(name, expanded);
    }
    let want = load(files(&config, &plain)).unwrap();
    config["quantization_config"] =
        official::config(&folder("int8"))["quantization_config"].clone();
    let got = load(files(&config, &stored)).unwrap();
    assert_eq!(got.info(), want.info());
    assert!(got.info().experts.is_some());
    assert_eq!(got.logits(&case.tokens).unwrap(), want.logits(&case.tokens).unwrap());
}

/// Quantized checkpoints of DiffusionGemma have a matrix for each expert, the published one a tensor for all.
#[test]
fn experts_of_diffusion_gemma_may_be_stored_one_by_one() {
    let [case, _] = canvas::Case::all();
    let mut config = official::config(case.folder());
    let stacked = tensors(&std::fs::read(case.folder().join("model.safetensors")).unwrap());
    let tokens = [3, 14, 15, 9, 2, 6];
    for layout in ["experts", "moe.experts"] {
        let mut separate = Tensors::new();
        for (name, (dtype, shape, bytes)) in stacked.clone() {
            let Some((layer, part)) = name.split_once(".experts.") else {
                separate.insert(name, (dtype, shape, bytes));
                continue;
            };
            let names: &[&str] =
                if part == "down_proj" { &["down_proj"] } else { &["gate_proj", "up_proj"] };
            let shape = vec![shape[1] / names.len(), shape[2]];
            let size = shape.iter().product::<usize>() * dtype.bitsize() / 8;
            for (index, bytes) in bytes.chunks(size).enumerate() {
                let (expert, matrix) = (index / names.len(), names[index % names.len()]);
                let name = format!("{layer}.{layout}.{expert}.{matrix}.weight");
                separate.insert(name, (dtype, shape.clone(), bytes.to_vec()));
            }
        }
        assert!(separate.len() > stacked.len());
        let want = Model::load(Checkpoint::open(&Files::memory(files(&config, &stacked))).unwrap());
        let (got, want) = (load(files(&config, &separate)).unwrap(), want.unwrap());
        assert_eq!(got.warnings(), want.warnings());
        assert_eq!(got.info(), want.info());
        let logits = |model: &Model| model.logits(&tokens).unwrap();
        assert_eq!(logits(&got), logits(&want), "{layout}");

        let names = separate.keys().filter(|name| name.contains(layout)).cloned();
        for name in names.collect::<Vec<_>>() {
            let (_, shape, bytes) = separate.remove(&name).unwrap();
            let [codes, scales, _] = integers(&bytes, shape[0]);
            separate.extend([(format!("{name}_scale"), scales), (name, codes)]);
        }
        config["quantization_config"] =
            official::config(&folder("int8-mlp"))["quantization_config"].clone();
        let targets = &mut config["quantization_config"]["config_groups"]["group_0"]["targets"];
        *targets = json!([r"re:.*experts\..*"]);
        let rounded = load(files(&config, &separate)).unwrap();
        let off = official::error(&logits(&rounded), &logits(&want), got.info().vocabulary.size);
        assert!(off > 1e-5 && off < 0.2, "{off:.1e}");
        config.as_object_mut().unwrap().remove("quantization_config");
    }
}

#[test]
fn integers_of_experts_are_kept() {
    let case = official::Case::named("qwen3-moe");
    let mut config = case.config();
    // Sizes that blocks divide, in place of the case's.
    for (key, size) in [
        ("hidden_size", 32),
        ("intermediate_size", 64),
        ("moe_intermediate_size", 32),
        ("head_dim", 8),
    ] {
        config[key] = json!(size);
    }
    let wider = |size: usize| match size {
        24 | 9 | 40 => 32,
        34 => 64,
        20 => 16,
        10 => 8,
        size => size,
    };
    let mut noise = Noise(8);
    let mut stored = Tensors::new();
    for (name, (dtype, shape, _)) in
        tensors(&std::fs::read(case.folder.join("model.safetensors")).unwrap())
    {
        let shape: Vec<usize> = shape.into_iter().map(wider).collect();
        let number = |_| if shape.len() == 1 { 1.0 } else { 0.2 * noise.next() };
        let numbers: Vec<f32> = (0..shape.iter().product()).map(number).collect();
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        if name.ends_with("_proj.weight") {
            let [codes, scales, _] = integers(&bytes, shape[0]);
            stored.extend([(format!("{name}_scale"), scales), (name, codes)]);
        } else {
            stored.insert(name, (dtype, shape, bytes));
        }
    }
    config["quantization_config"] =
        official::config(&folder("int8"))["quantization_config"].clone();
    let load = |dtype| {
        let checkpoint = Checkpoint::open(&Files::memory(files(&config, &stored))).unwrap();
        Model::load(checkpoint.with_dtype(dtype)).unwrap()
    };
    let (kept, expanded) = (load(WeightDtype::Blocks), load(WeightDtype::F32));
    assert!(kept.memory().weights < expanded.memory().weights);
    let vocab = kept.info().vocabulary.size;
    let logits = |model: &Model| model.logits(&case.tokens).unwrap();
    let off = official::error(&logits(&kept), &logits(&expanded), vocab);
    assert!(off > 1e-5 && off < 0.2, "{off:.1e}");
}
