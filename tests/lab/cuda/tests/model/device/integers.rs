//! Models in int8 on emulated kernels beside the CPU. Products have the CPU's bits; norms, attention and
//! gates do not, and an input that lies between two integers may be rounded to the other one.

use super::sizes;
use super::texts::run;
use crate::common::sized;
use asynclane_cuda_lab::emulated;
use asynclane_model::{
    Checkpoint, DeviceConfig, DeviceExecutor, DeviceModel, Files, KvDtype, KvMemory, Model,
    WeightDtype,
};
use engine::Request;
use engine::decoding::DecodingSpec;
use step::Executor;

/// The embedded models, a preset of each, and the format of keys and values.
const DEMOS: [(&str, &str, KvDtype); 3] = [
    ("checkpoint", "fast", KvDtype::Int8),
    ("checkpoint-sdar", "block_causal", KvDtype::Int8),
    ("checkpoint-wedlm", "wedlm", KvDtype::Bf16),
];
/// Questions in the models' chat template: eggs of Zoe, pens of Ana.
const PROMPTS: [&[u32]; 2] = [
    &[
        0, 2, 836, 3, 204, 204, 452, 276, 313, 321, 19, 336, 289, 579, 270, 412, 407, 321, 19, 350,
        289, 371, 274, 321, 19, 392, 391, 321, 389, 475, 384, 327, 36, 4, 2, 70, 819, 828, 89, 3,
        204, 204,
    ],
    &[
        0, 2, 836, 3, 204, 204, 589, 276, 513, 330, 19, 336, 289, 404, 316, 330, 19, 350, 289, 428,
        274, 319, 330, 19, 392, 391, 330, 389, 481, 384, 327, 36, 4, 2, 70, 819, 828, 89, 3, 204,
        204,
    ],
];
const LENGTH: u32 = 32;

fn checkpoint(name: &str, kv: KvDtype) -> Checkpoint {
    let folder = format!("{}/../../../crates/demo/{name}", env!("CARGO_MANIFEST_DIR"));
    let checkpoint = Checkpoint::open(&Files::folder(&folder)).unwrap();
    checkpoint.with_dtype(WeightDtype::Int8).with_kv_dtype(kv)
}

/// The texts of some prompts that run together.
fn texts(executor: &mut dyn Executor, preset: &str, prompts: &[&[u32]]) -> Vec<Vec<u32>> {
    let decoding = DecodingSpec::parse(preset).and_then(|spec| spec.resolve()).unwrap();
    let request = |prompt: &&[u32]| Request::new(prompt.to_vec(), LENGTH, decoding.clone());
    let found = run(executor, prompts.iter().map(request).collect());
    found.into_iter().map(|found| found.text).collect()
}

fn on_device(name: &str, kv: KvDtype) -> DeviceExecutor {
    let model = DeviceModel::load(&emulated(), checkpoint(name, kv)).unwrap();
    let bytes = 512 * model.kv_bytes_per_position() as u64;
    let config = DeviceConfig { positions: 160, kv: KvMemory::Bytes(bytes), ..sizes(&model) };
    DeviceExecutor::new(model, config).unwrap()
}

/// Tokens of two texts before the first that differs.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[test]
fn texts_of_the_embedded_models_begin_as_those_of_the_cpu_and_neighbours_change_none() {
    let mut shared = 0;
    for (name, preset, kv) in DEMOS {
        let mut device = on_device(name, kv);
        let mut cpu = sized(Model::load(checkpoint(name, kv)).unwrap(), 64, 0);
        let found = texts(&mut device, preset, &PROMPTS);
        let want = texts(&mut cpu, preset, &PROMPTS);
        assert!(found.iter().all(|text| text.len() == LENGTH as usize), "{name}: {found:?}");
        for (found, want) in found.iter().zip(&want) {
            println!("{name}: {} of {LENGTH} tokens", common(found, want));
            shared += common(found, want);
        }
        assert_eq!(texts(&mut device, preset, &PROMPTS[..1]), found[..1], "{name}");
    }
    let all = DEMOS.len() * PROMPTS.len() * LENGTH as usize;
    assert!(2 * shared > all, "{shared} of {all} tokens");
}
