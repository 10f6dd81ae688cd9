//! Texts of DiffusionGemma through the engine, equal to those of the official sampler.

use asynclane_cuda_lab::emulated;
use asynclane_model::{
    Checkpoint, DeviceConfig, DeviceExecutor, DeviceModel, Files, KvMemory, WeightDtype,
};
use engine::decoding::DecodingSpec;
use engine::{ByPriority, Capabilities, Engine, EngineConfig, Event, Request};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use step::{Attention, BatchOutput, Executor};

/// The texts of requests that run together.
fn run(executor: &mut DeviceExecutor, requests: Vec<Request>) -> Vec<Vec<u32>> {
    let config = EngineConfig {
        max_running: 256,
        max_waiting: 1024,
        row_budget: 4096,
        long_quantum: 100_000,
        prefill_chunk: 0,
        grammar_timeout: Duration::ZERO,
        prefix_cache: true,
        max_model_len: None,
        classes: Arc::default(),
        wait_order: Arc::new(ByPriority),
        capabilities: Capabilities::default(),
    };
    let mut engine = Engine::new(&config, executor.spec());
    let ids: Vec<_> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    let (mut texts, mut output) = (HashMap::new(), BatchOutput::default());
    while !engine.is_idle() {
        if let Some(step) = engine.plan() {
            executor.execute(step.batch(), &mut output).unwrap();
            engine.apply(step, &output, Duration::ZERO);
        }
        while let Some((id, event)) = engine.poll_event() {
            let text: &mut Vec<u32> = texts.entry(id).or_default();
            match event {
                Event::Tokens { chunk, .. } => text.extend_from_slice(chunk.as_slice()),
                Event::Refused { message } | Event::Failed { message } => panic!("{message}"),
                Event::Started | Event::Step(_) | Event::Labels(_) | Event::Finished(_) => {}
            }
        }
    }
    ids.iter().map(|id| texts.remove(id).unwrap()).collect()
}

fn tokens(list: &Value) -> Vec<u32> {
    let tokens = list.as_array().unwrap().iter();
    tokens.map(|token| token.as_u64().unwrap() as u32).collect()
}

fn request(sample: &Value, ends: &[u32], length: u32) -> Request {
    let names = [
        "t_min",
        "t_max",
        "stability_threshold",
        "confidence_threshold",
        "entropy_bound",
        "max_denoising_steps",
    ];
    let settings = names.map(|name| format!("{name}={}", sample["settings"][name]));
    let decoder = format!("canvas,block_length={length},{}", settings.join(","));
    let decoding = DecodingSpec::parse(&decoder).and_then(|spec| spec.resolve());
    let most = sample["max_new_tokens"].as_u64().unwrap() as u32;
    let mut request = Request {
        stop_tokens: ends.to_vec(),
        ..Request::new(tokens(&sample["prompt"]), most, decoding.unwrap())
    };
    request.sampling.temperature = 1.0;
    request.sampling.seed = sample["seed"].as_u64().unwrap();
    request
}

/// Two samples together, and one alone.
#[test]
fn texts_equal_those_of_the_official_sampler() {
    for name in ["diffusion-gemma", "diffusion-gemma-odd"] {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/canvas");
        let folder = format!("{fixtures}/{name}");
        let text = std::fs::read_to_string(format!("{folder}/samples.json")).unwrap();
        let of: Value = serde_json::from_str(&text).unwrap();
        let ends = match &of["origin"]["end_tokens"] {
            one @ Value::Number(_) => vec![one.as_u64().unwrap() as u32],
            several => tokens(several),
        };
        let checkpoint = Checkpoint::open(&Files::folder(&folder)).unwrap();
        let checkpoint = checkpoint.with_dtype(WeightDtype::F32);
        let model = DeviceModel::load(&emulated(), checkpoint).unwrap();
        let Attention::Canvas(length) = model.info().rows.attention else {
            panic!("a canvas model");
        };
        let sizes = DeviceConfig {
            page_size: 16,
            rows: 256,
            positions: 256,
            sequences: 8,
            kv: KvMemory::Bytes(128 * 16 * model.kv_bytes_per_position() as u64),
        };
        let mut executor = DeviceExecutor::new(model, sizes).unwrap();
        let samples = &of["samples"].as_array().unwrap()[..2];
        let request = |sample| request(sample, &ends, length);
        let together = run(&mut executor, samples.iter().map(request).collect());
        for (sample, text) in samples.iter().zip(&together) {
            let canvases = sample["canvases"].as_array().unwrap();
            let all = canvases.iter().flat_map(tokens);
            let asked = all.take(sample["max_new_tokens"].as_u64().unwrap() as usize);
            let want: Vec<u32> = asked.take_while(|token| !ends.contains(token)).collect();
            assert_eq!(*text, want, "{name}");
        }
        let alone = run(&mut executor, vec![request(&samples[0])]);
        assert_eq!(alone[0], together[0], "{name}");
    }
}
