//! DiffusionGemma through the engine: texts equal to those of the official sampler, and readings equal
//! to those of the CPU.

use crate::canvas::Case;
use asynclane_cuda_lab::emulated;
use asynclane_model::{
    Checkpoint, Cpu, DeviceConfig, DeviceExecutor, DeviceModel, Files, KvMemory, Model, WeightDtype,
};
use decode::{Offset, Pin};
use engine::decoding::DecodingSpec;
use engine::{ByPriority, Capabilities, Engine, EngineConfig, Event, Labels, Request};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use step::{Attention, BatchOutput, Executor, TopToken};

/// The text of a request, and the labels that it read.
#[derive(Default)]
pub(super) struct Found {
    pub(super) text: Vec<u32>,
    labels: Vec<TopToken>,
}

fn engine(capabilities: &Capabilities, executor: &dyn Executor) -> Engine {
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
        capabilities: capabilities.clone(),
    };
    Engine::new(&config, executor.spec())
}

/// The results of requests that run together.
pub(super) fn run(executor: &mut dyn Executor, requests: Vec<Request>) -> Vec<Found> {
    run_with(&Capabilities::default(), executor, requests)
}

/// As [`run`], of a model with these capabilities.
pub(super) fn run_with(
    capabilities: &Capabilities,
    executor: &mut dyn Executor,
    requests: Vec<Request>,
) -> Vec<Found> {
    let mut engine = engine(capabilities, executor);
    let ids: Vec<_> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    let (mut all, mut output) = (HashMap::new(), BatchOutput::default());
    while !engine.is_idle() {
        if let Some(step) = engine.plan() {
            executor.execute(step.batch(), &mut output).unwrap();
            engine.apply(step, &output, Duration::ZERO);
        }
        while let Some((id, event)) = engine.poll_event() {
            let found: &mut Found = all.entry(id).or_default();
            match event {
                Event::Tokens { chunk, .. } => found.text.extend_from_slice(chunk.as_slice()),
                Event::Labels(labels) => found.labels = labels.into_vec(),
                Event::Refused { message } | Event::Failed { message } => panic!("{message}"),
                Event::Started | Event::Step(_) | Event::Finished(_) => {}
            }
        }
    }
    ids.iter().map(|id| all.remove(id).unwrap()).collect()
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

fn on_device(folder: &str) -> DeviceExecutor {
    let checkpoint = Checkpoint::open(&Files::folder(folder)).unwrap();
    let model = DeviceModel::load(&emulated(), checkpoint.with_dtype(WeightDtype::F32)).unwrap();
    let sizes = DeviceConfig {
        page_size: 16,
        rows: 256,
        positions: 256,
        sequences: 8,
        kv: KvMemory::Bytes(128 * 16 * model.kv_bytes_per_position() as u64),
    };
    DeviceExecutor::new(model, sizes).unwrap()
}

fn length(executor: &dyn Executor) -> u32 {
    let Attention::Canvas(length) = executor.spec().attention else {
        panic!("a canvas model");
    };
    length
}

/// Three readings of two answers each on canvases of noise: near those of the CPU, and the same bits alone.
#[test]
fn readings_are_those_of_the_cpu() {
    for case in Case::all() {
        let mut device = on_device(&case.folder().display().to_string());
        let checkpoint = case.checkpoint().with_dtype(WeightDtype::F32);
        let model = Model::load_on(Cpu::default(), checkpoint).unwrap();
        let mut cpu = crate::common::sized(model, 64, 0);
        let (prompt, written) = (case.tokens("prompt"), case.tokens("canvas_a"));
        let canvas = written.len() as u32;
        assert_eq!(canvas, length(&device));
        let weights = engine(&Capabilities::default(), &device).limits().kind();
        let reading = |seed: u64| {
            let offsets = [1, canvas - 2].map(Offset::new);
            let pins = (0..canvas).map(Offset::new).zip(&written);
            let pins = pins.filter(|(offset, _)| !offsets.contains(offset));
            let mut request = Request::new(prompt.clone(), canvas, weights.reader(canvas));
            request.sampling.seed = seed;
            request.given.pins = pins.map(|(offset, token)| Pin::fixed(offset, *token)).collect();
            let tokens = Arc::from([5, 9, 17, 30]);
            request.extras.labels = Some(Labels { offsets: offsets.to_vec(), tokens });
            request
        };
        let found = run(&mut device, (0..3).map(reading).collect());
        let wanted = run(&mut cpu, (0..3).map(reading).collect());
        let mut seen = 0;
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found.labels.len(), 2 * 4);
            for (found, wanted) in found.labels.iter().zip(&wanted.labels) {
                assert_eq!(found.token, wanted.token);
                let error = f64::from(found.logprob - wanted.logprob).abs();
                assert!(error < 1e-3, "{error}");
                seen += 1;
            }
        }
        assert_eq!(seen, 3 * 2 * 4);
        let alone = run(&mut device, vec![reading(1)]);
        assert_eq!(alone[0].labels, found[1].labels);
        assert_ne!(found[0].labels, found[1].labels, "noise is drawn by seed");
    }
}

/// Two samples together, and one alone.
#[test]
fn texts_equal_those_of_the_official_sampler() {
    for name in ["diffusion-gemma", "diffusion-gemma-odd"] {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/canvas");
        let folder = format!("{fixtures}/{name}");
        let text = std::fs::read_to_string(format!("{folder}/samples.json")).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        let ends = match &record["origin"]["end_tokens"] {
            one @ Value::Number(_) => vec![one.as_u64().unwrap() as u32],
            several => tokens(several),
        };
        let mut executor = on_device(&folder);
        let length = length(&executor);
        let samples = &record["samples"].as_array().unwrap()[..2];
        let request = |sample| request(sample, &ends, length);
        let together = run(&mut executor, samples.iter().map(request).collect());
        for (sample, Found { text, .. }) in samples.iter().zip(&together) {
            let canvases = sample["canvases"].as_array().unwrap();
            let all = canvases.iter().flat_map(tokens);
            let asked = all.take(sample["max_new_tokens"].as_u64().unwrap() as usize);
            let want: Vec<u32> = asked.take_while(|token| !ends.contains(token)).collect();
            assert_eq!(*text, want, "{name}");
        }
        let alone = run(&mut executor, vec![request(&samples[0])]);
        assert_eq!(alone[0].text, together[0].text, "{name}");
    }
}
