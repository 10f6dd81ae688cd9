//! Weights equal those that each format's own library expands the files to.

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use half::{bf16, f16};
use kernels::{BlockType, WeightDtype, float8};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use super::kept::half;
use crate::weights::Weights;
use crate::{Checkpoint, Files};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/quantized");

#[test]
fn weights_are_those_of_the_formats_libraries() {
    let mut cases = 0;
    for entry in std::fs::read_dir(CASES).unwrap() {
        let folder = entry.unwrap().path();
        let files = Files::folder(folder.clone());
        let mut expanded = Weights::open_single(&files, "expanded.safetensors").unwrap();
        let mut weights = Checkpoint::open(&files).unwrap().weights;
        let names = expanded.unused();
        assert!(names.len() >= 3, "{}", folder.display());
        for name in names {
            let shape = expanded.shape(&name).unwrap().to_vec();
            let want = expanded.tensor(&name, &shape).unwrap();
            assert!(weights.has(&name, &shape));
            let mut got = Vec::new();
            weights.append(&name, &shape, &mut got).unwrap();
            // The sum has no negative zero; Model Optimizer reads it as zero.
            let bits = |x: &[f32]| x.iter().map(|x| (x + 0.0).to_bits()).collect::<Vec<_>>();
            assert!(bits(&got) == bits(&want), "{}: {name}", folder.display());
        }
        cases += 1;
    }
    assert_eq!(cases, 33);
}

/// Cases whose matrices are kept, by type.
const KEPT: [(&str, &str); 31] = [
    ("autofp8", "FP8"),
    ("awq", "Q5_0"),
    ("awq-64", "Q5_0"),
    ("deepseek", "FP8"),
    ("deepseek-matrix", "FP8"),
    ("fp8-channel", "FP8"),
    ("fp8-tensor", "FP8"),
    ("gptq", "Q5_0"),
    ("gptq-8-symmetric", "Q8_0"),
    ("gptq-ordered", "Q5_0"),
    ("gptq-rows", "Q4_0"),
    ("int8", "Q8_0"),
    ("int8-mlp", "Q8_0"),
    ("mlx", "Q4_1"),
    ("mlx-2", "Q4_1"),
    ("mlx-5", "Q5_1"),
    ("mlx-6", "AFFINE8"),
    ("mlx-8", "AFFINE8"),
    ("mlx-mixed", "AFFINE8"),
    ("mlx-mixed", "NVFP4"),
    ("mlx-mixed", "Q4_1"),
    ("mlx-mxfp4", "NVFP4"),
    ("mlx-mxfp8", "FP8"),
    ("mlx-nvfp4", "NVFP4"),
    ("modelopt", "NVFP4"),
    ("modelopt-mixed", "FP8"),
    ("modelopt-mixed", "NVFP4"),
    ("nvfp4", "NVFP4"),
    ("packed-4", "Q4_0"),
    ("packed-4-zeros", "Q5_0"),
    ("packed-8", "Q8_0"),
];

#[test]
fn kept_codes_round_to_the_numbers_of_the_formats_libraries() {
    let mut found = Vec::new();
    let mut folders: Vec<_> =
        std::fs::read_dir(CASES).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders {
        let files = Files::folder(folder.clone());
        let case = folder.file_name().unwrap().to_str().unwrap();
        let mut expanded = Weights::open_single(&files, "expanded.safetensors").unwrap();
        let mut weights = Checkpoint::open(&files).unwrap().weights;
        let mut exact = Checkpoint::open(&with_f32(&folder)).unwrap().weights;
        weights.dtype = WeightDtype::Blocks;
        for name in expanded.unused() {
            let shape = expanded.shape(&name).unwrap().to_vec();
            let mut want = expanded.tensor(&name, &shape).unwrap();
            let Some(kind) = weights.kind(&name, &shape, true).unwrap() else {
                continue;
            };
            let bytes = weights.blocks(&name, &shape, kind).unwrap();
            let kept = match kind {
                BlockType::Q4_0 => by_candle(GgmlDType::Q4_0, &bytes, &shape),
                BlockType::Q4_1 => by_candle(GgmlDType::Q4_1, &bytes, &shape),
                BlockType::Q5_1 => by_candle(GgmlDType::Q5_1, &bytes, &shape),
                BlockType::FP8 => bytes.chunks_exact(kind.bytes()).flat_map(eights).collect(),
                BlockType::AFFINE8 => bytes.chunks_exact(kind.bytes()).flat_map(affine).collect(),
                BlockType::Q5_0 => by_candle(GgmlDType::Q5_0, &bytes, &shape),
                BlockType::Q8_0 => by_candle(GgmlDType::Q8_0, &bytes, &shape),
                _ => bytes.chunks_exact(kind.bytes()).flat_map(fours).collect(),
            };
            // Weights of 8-bit floats are multiplied in bf16.
            let rounded = |x: f32| match expanded.is_bf16(&name) || kind == BlockType::FP8 {
                true => bf16::from_f32(x).to_f32(),
                false => f16::from_f32(x).to_f32(),
            };
            let kept: Vec<f32> = match kind {
                // MLX also rounds the product of a code and a scale, unless these are in f32.
                BlockType::Q4_1 | BlockType::Q5_1 | BlockType::AFFINE8 => {
                    want.clear();
                    exact.append(&name, &shape, &mut want).unwrap();
                    kept
                }
                _ => {
                    want.iter_mut().for_each(|x| *x = rounded(*x));
                    kept.into_iter().map(rounded).collect()
                }
            };
            assert!(kept == want, "{case}: {name}");
            found.push((case.to_owned(), kind.name()));
        }
    }
    found.sort();
    found.dedup();
    let found: Vec<_> = found.iter().map(|(case, kind)| (&**case, *kind)).collect();
    assert_eq!(found, KEPT);
}

fn by_candle(dtype: GgmlDType, bytes: &[u8], shape: &[usize]) -> Vec<f32> {
    let tensor = qtensor_from_ggml(dtype, bytes, shape.to_vec(), &Device::Cpu).unwrap();
    tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// A checkpoint with its numbers of 16 bits in f32.
fn with_f32(folder: &std::path::Path) -> Files {
    let file = std::fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let wide = tensors.iter().map(|(name, tensor)| {
        let halves = tensor.data().as_chunks().0.iter().map(|half| u16::from_le_bytes(*half));
        let bytes = |number: fn(u16) -> f32| halves.flat_map(|x| number(x).to_le_bytes()).collect();
        let (dtype, bytes) = match tensor.dtype() {
            Dtype::BF16 => (Dtype::F32, bytes(|half| bf16::from_bits(half).to_f32())),
            Dtype::F16 => (Dtype::F32, bytes(|half| f16::from_bits(half).to_f32())),
            other => (other, tensor.data().to_vec()),
        };
        (name, dtype, tensor.shape().to_vec(), bytes)
    });
    let wide: Vec<(_, _, _, Vec<u8>)> = wide.collect();
    let views = wide.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let config = std::fs::read(folder.join("config.json")).unwrap();
    let file = safetensors::serialize(views, None).unwrap();
    Files::memory([("config.json", config), ("model.safetensors", file)])
}

/// The codes of a block with a scale and a minimum.
fn affine(block: &[u8]) -> Vec<f32> {
    let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]).to_f32();
    block[4..].iter().map(|code| f32::from(*code) * half(0) + half(2)).collect()
}

/// The 4-bit floats of a block.
fn fours(block: &[u8]) -> Vec<f32> {
    let factor = f32::from_le_bytes(block[..4].try_into().unwrap());
    let size = |code: u8| [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    let codes = block[6..].iter().flat_map(|byte| [byte & 0x0F, byte >> 4]);
    let numbers = codes.enumerate().map(|(i, code)| {
        let scale = float8(block[4 + i / 16]) * factor;
        if code < 8 { size(code) * scale } else { -size(code) * scale }
    });
    numbers.collect()
}

/// The 8-bit floats of a block.
fn eights(block: &[u8]) -> Vec<f32> {
    let scale = f32::from_le_bytes(block[..4].try_into().unwrap());
    block[4..].iter().map(|code| float8(*code) * scale).collect()
}

/// Inputs in another order than their groups.
#[test]
fn ordered_integers_are_expanded() {
    let folder = std::path::Path::new(CASES).join("gptq");
    let mut file = std::fs::read(folder.join("model.safetensors")).unwrap();
    let name = "model.layers.0.self_attn.q_proj";
    let start = {
        let tensors = SafeTensors::deserialize(&file).unwrap();
        let order = tensors.tensor(&format!("{name}.g_idx")).unwrap();
        order.data().as_ptr() as usize - file.as_ptr() as usize
    };
    for (group, is_kept) in [(0u32, true), (1, false)] {
        file[start..start + 4].copy_from_slice(&group.to_le_bytes());
        let config = std::fs::read(folder.join("config.json")).unwrap();
        let files = [("config.json", config), ("model.safetensors", file.clone())];
        let mut weights = Checkpoint::open(&Files::memory(files)).unwrap().weights;
        weights.dtype = WeightDtype::Blocks;
        let kind = weights.kind(&format!("{name}.weight"), &[64, 64], true).unwrap();
        assert_eq!(kind.is_some(), is_kept, "group {group}");
    }
}

#[test]
fn integers_whose_scales_have_not_16_bits_are_expanded() {
    let folder = std::path::Path::new(CASES).join("packed-4");
    let file = std::fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let name = tensors.names().into_iter().find(|name| name.ends_with(".weight_scale")).unwrap();
    let matrix = format!("{}.weight", name.strip_suffix(".weight_scale").unwrap());
    let rows = tensors.tensor(name).unwrap().shape()[0];
    let shape = [rows, 32 * tensors.tensor(name).unwrap().shape()[1]];
    let start = tensors.tensor(name).unwrap().data().as_ptr() as usize - file.as_ptr() as usize;
    // In bf16: a scale below the numbers of 16 bits, and one whose product with 8 is too large.
    for (scale, is_kept) in [(0x3C81_u16, true), (0x3381, false), (0x4681, false)] {
        let mut file = file.clone();
        file[start..start + 2].copy_from_slice(&scale.to_le_bytes());
        let config = std::fs::read(folder.join("config.json")).unwrap();
        let files = [("config.json", config), ("model.safetensors", file)];
        let files = Files::memory(files);
        let mut weights = Checkpoint::open(&files).unwrap().weights;
        weights.dtype = WeightDtype::Blocks;
        let kind = weights.kind(&matrix, &shape, true).unwrap();
        assert_eq!(kind.is_some(), is_kept, "{scale:#x}");
    }
}

#[test]
fn floats_with_large_scales_are_expanded() {
    let folder = std::path::Path::new(CASES).join("fp8-channel");
    let file = std::fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    let name = tensors.names().into_iter().find(|name| name.ends_with(".weight_scale")).unwrap();
    let module = name.strip_suffix("_scale").unwrap();
    let shape = tensors.tensor(module).unwrap().shape().to_vec();
    let scales = tensors.tensor(name).unwrap();
    assert_eq!(scales.dtype(), safetensors::Dtype::BF16);
    let start = scales.data().as_ptr() as usize - file.as_ptr() as usize;
    // 127.5 and -128 in bf16.
    for (scale, is_kept) in [(0x42FF_u16, true), (0xC300, false)] {
        let mut file = file.clone();
        file[start..start + 2].copy_from_slice(&scale.to_le_bytes());
        let config = std::fs::read(folder.join("config.json")).unwrap();
        let files = [("config.json", config), ("model.safetensors", file)];
        let mut weights = Checkpoint::open(&Files::memory(files)).unwrap().weights;
        weights.dtype = WeightDtype::Blocks;
        assert_eq!(weights.kind(module, &shape, true).unwrap().is_some(), is_kept, "{scale:#x}");
    }
}

/// Part of a matrix, element, and bytes that are written there.
type Change = (&'static str, usize, &'static [u8]);

#[test]
fn scales_of_mlx_that_blocks_do_not_hold_are_expanded() {
    const GATE: &str = "model.layers.0.mlp.gate_proj";
    // A row of zeros.
    let row = 3;
    let cases: [(&str, &[Change], bool); 9] = [
        ("mlx", &[], true),
        // 2^-25 in bf16 for codes that are zero, and for others.
        ("mlx", &[("scales", row, &[0, 0x33])], true),
        ("mlx", &[("scales", row, &[0, 0x33]), ("weight", 8 * row + 3, &[0, 0, 0, 0x10])], false),
        ("mlx", &[("scales", 0, &[0, 0x33])], false),
        ("mlx", &[("biases", row, &[0, 0x33])], false),
        // 65536 in bf16.
        ("mlx", &[("biases", row, &[0x80, 0x47])], false),
        // The largest is 2^0, and 8-bit floats have 18 powers of two.
        ("mlx-mxfp4", &[("scales", 0, &[127 - 17])], true),
        ("mlx-mxfp4", &[("scales", 0, &[127 - 18])], false),
        ("mlx-mxfp4", &[("scales", row, &[0])], true),
    ];
    for (case, changes, is_kept) in cases {
        let folder = std::path::Path::new(CASES).join(case);
        let mut file = std::fs::read(folder.join("model.safetensors")).unwrap();
        let mut columns = 0;
        for (part, element, bytes) in changes.iter().copied().chain([("scales", 0, &[][..])]) {
            let tensors = SafeTensors::deserialize(&file).unwrap();
            let tensor = tensors.tensor(&format!("{GATE}.{part}")).unwrap();
            columns = tensor.shape()[1] * if case == "mlx" { 64 } else { 32 };
            let start = tensor.data().as_ptr() as usize - file.as_ptr() as usize;
            let start = start + element * tensor.dtype().bitsize() / 8;
            file[start..start + bytes.len()].copy_from_slice(bytes);
        }
        let config = std::fs::read(folder.join("config.json")).unwrap();
        let files = Files::memory([("config.json", config), ("model.safetensors", file)]);
        let mut weights = Checkpoint::open(&files).unwrap().weights;
        weights.dtype = WeightDtype::Blocks;
        let kind = weights.kind(&format!("{GATE}.weight"), &[2 * columns, columns], true).unwrap();
        assert_eq!(kind.is_some(), is_kept, "{case}: {changes:?}");
    }
}

#[test]
fn scales_of_16_bits_are_those_of_f16() {
    for bits in 0..=u16::MAX {
        let number = f16::from_bits(bits);
        let found = half(BlockType::Q4_1, number.to_f32()).map(f16::to_bits);
        assert_eq!(found, number.is_finite().then_some(bits), "{bits:#x}");
        // The next number of 32 bits has no such scale.
        let next = f32::from_bits(number.to_f32().to_bits() + 1);
        assert_eq!(half(BlockType::Q4_1, next), None, "{bits:#x}");
    }
    assert_eq!(half(BlockType::Q8_0, 2f32.powi(9)), None);
    assert_eq!(half(BlockType::Q4_1, 2f32.powi(16)), None);
}
