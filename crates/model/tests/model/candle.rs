//! The backend `candle` compared with the kernels of the CPU, and both with the models of
//! candle-transformers.

use crate::backends::{PAGES, batch, shapes};
use crate::common::{Noise, Tiny, execute, push, row, single, sized};
use crate::families::rows;
use crate::official::{Case, error};
use asynclane_model::{Candle, LoadError, Model, WeightDtype, selftest_on_cpu};
use candle_core::safetensors::load_buffer;
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, qwen2, qwen3, qwen3_moe};
use serde_json::{Value, json};
use std::collections::HashMap;
use step::{
    Attention, Batch, BatchOutput, Bias, Candidate, Executor, PageCopy, PageId, Sampling, Score,
    Slot,
};

fn on_candle(tiny: &Tiny, dtype: WeightDtype) -> std::result::Result<Model<Candle>, LoadError> {
    Model::load_on(Candle::default(), tiny.checkpoint().with_dtype(dtype))
}

/// The outputs of a batch on the CPU and on candle, whose candidates are near each other.
fn both([cpu, candle]: &mut [Box<dyn Executor>; 2], batch: &Batch, name: &str) -> [BatchOutput; 2] {
    let outputs = [execute(&mut **cpu, batch), execute(&mut **candle, batch)];
    near(&outputs[1].candidates, &outputs[0].candidates, name);
    outputs
}

fn executors(tiny: &Tiny) -> [Box<dyn Executor>; 2] {
    let candle = on_candle(tiny, WeightDtype::F32).unwrap();
    [Box::new(tiny.executor(PAGES, 1)), Box::new(sized(candle, PAGES, 0))]
}

fn near(got: &[Candidate], want: &[Candidate], name: &str) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let pairs = [
            (got.probability, want.probability),
            (got.runner_up_probability, want.runner_up_probability),
            (got.present, want.present),
            (f64::from(got.entropy), f64::from(want.entropy)),
            (f64::from(got.gap), f64::from(want.gap)),
        ];
        for (one, other) in pairs {
            let near = (one - other).abs() < 1e-4;
            assert!(near, "{name}, candidate {i}: {got:?} for {want:?}");
        }
        if want.probability - want.runner_up_probability > 1e-3 {
            assert_eq!(got.token, want.token, "{name}, candidate {i}");
        }
    }
}

/// Covers experts, head norms, biases, partial rotation, and every kind of attention.
#[test]
fn every_family_has_the_logits_of_the_cpu() {
    for case in Case::all() {
        for (dtype, tolerance) in [(WeightDtype::F32, 1e-5), (WeightDtype::Bf16, 1e-1)] {
            let cpu = case.model(dtype);
            let checkpoint = case.checkpoint().with_dtype(dtype);
            let candle = Model::load_on(Candle::default(), checkpoint).unwrap();
            assert_eq!(candle.info(), cpu.info());
            if dtype == WeightDtype::Bf16 && cpu.info().experts.is_some() {
                // Rounding may choose another expert.
                continue;
            }
            let got = candle.logits(&case.tokens).unwrap();
            let want = cpu.logits(&case.tokens).unwrap();
            let off = error(&got, &want, cpu.info().vocabulary.size);
            assert!(off < tolerance, "{} {}: {off:.1e}", case.name, dtype.name());
        }
    }
}

#[test]
fn every_family_has_the_candidates_of_the_cpu() {
    for case in Case::all() {
        let cpu = case.model(WeightDtype::F32);
        let candle = Model::load_on(Candle::default(), case.checkpoint()).unwrap();
        let (mut cpu, mut candle) = (sized(cpu, PAGES, 0), sized(candle, PAGES, 0));
        assert_eq!(candle.spec(), cpu.spec());
        assert_eq!(candle.instructions(), "candle");
        let batch = single(rows(&case, cpu.spec().attention), &[5, 2, 0, 3, 1, 4]);
        let want = execute(&mut cpu, &batch).candidates;
        near(&execute(&mut candle, &batch).candidates, &want, &case.name);
    }
}

#[test]
fn later_passes_read_written_pages_and_page_copies() {
    for (seed, shape) in shapes().iter().enumerate() {
        let tiny = Tiny::new(3 + seed as u64, shape);
        let mut executors = executors(&tiny);
        let first = batch(&mut Noise(8), &[30, 9], Sampling::GREEDY);
        let mut second = Batch::default();
        // The first page of the first sequence is copied, and one row of the copy is replaced.
        second.copies.push(PageCopy { source: first.pages[0], destination: PageId(0) });
        let rest = first.pages[1..4].iter().map(|page| page.0);
        let table: Vec<u32> = [0].into_iter().chain(rest).collect();
        let mut rows = vec![row(9, 3, 30), row(11, 12, 30), row(12, 13, 14)];
        // A row that sees nothing.
        rows[2].visible_end = Slot::new(0);
        push(&mut second, rows, &table, Sampling::GREEDY);
        for (i, batch) in [&first, &second, &Batch::default()].into_iter().enumerate() {
            both(&mut executors, batch, &format!("{shape} batch {i}"));
        }
    }
}

#[test]
fn slots_beyond_a_prefix_match_the_cpu() {
    let tiny = Tiny::new(6, &shapes()[1]);
    let mut batch = batch(&mut Noise(12), &[20, 5], Sampling::GREEDY);
    for (i, row) in batch.rows[..20].iter_mut().enumerate() {
        row.visible_end = Slot::new(i as u32 / 2);
        row.beyond = if i % 3 == 0 { 0b1011 } else { 0 };
    }
    both(&mut executors(&tiny), &batch, "beyond");
}

#[test]
fn sampling_filters_tops_biases_and_sets_match_the_cpu() {
    let tiny = Tiny::new(4, &shapes()[0]);
    let mut executors = executors(&tiny);
    let plain = Sampling { temperature: 0.8, seed: 1 << 50 | 5, clock: 3, ..Sampling::GREEDY };
    let filtered = Sampling { top_p: 0.8, top_k: 9, ..plain };
    let relative = Sampling { min_p: 0.2, ..plain };
    for sampling in [Sampling::GREEDY, plain, filtered, relative] {
        let mut batch = batch(&mut Noise(9), &[12, 3], sampling);
        batch.biases = vec![Bias::add(7, 2.5), Bias::ban(8)];
        batch.allowed = vec![0x0F0F_F0F0, 0x00FF_00FF, 0, 0];
        batch.rows[1].biases = 0..2;
        batch.rows[2].score = Score::Top(5);
        batch.rows[7].score = Score::Among { set: 0, count: 30 };
        batch.rows[6].score = Score::Among { set: 1, count: 3 };
        batch.rows[6].biases = 0..2;
        batch.rows[3].score = Score::None;
        batch.rows[4].allowed = Some(0);
        batch.rows[13].score = Score::Top(1);
        batch.rows[13].biases = 1..2;
        // Nothing is allowed.
        batch.rows[5].allowed = Some(1);
        batch.rows[5].score = Score::Top(2);
        let [want, got] = both(&mut executors, &batch, &format!("{sampling:?}"));
        let tokens = |output: &BatchOutput| -> Vec<u32> {
            output.candidates.iter().map(|one| one.token).collect()
        };
        assert_eq!(tokens(&got), tokens(&want), "{sampling:?}");
        assert_eq!(got.tops.len(), 41);
        for (got, want) in got.tops.iter().zip(&want.tops) {
            assert_eq!(got.token, want.token);
            let same = got.logprob == want.logprob;
            assert!(same || (got.logprob - want.logprob).abs() < 1e-4);
        }
    }
}

#[test]
fn eight_bit_blocks_are_close_and_need_rows_of_whole_blocks() {
    let whole = Tiny::new(5, &json!({"d_model": 64, "mlp_hidden_size": 96}));
    let tokens = [3, 9, 27, 14, 50, 2];
    let want = whole.model().logits(&tokens).unwrap();
    for (dtype, bounds) in
        [(WeightDtype::Int8, f64::MIN_POSITIVE..5e-2), (WeightDtype::Int4, 1e-2..0.5)]
    {
        let got = on_candle(&whole, dtype).unwrap().logits(&tokens).unwrap();
        let off = error(&got, &want, 61);
        assert!(bounds.contains(&off), "{dtype:?}: {off:.1e}");
    }
    let odd = Tiny::new(5, &json!({"d_model": 64, "mlp_hidden_size": 80}));
    // candle's errors have a backtrace.
    let refused = on_candle(&odd, WeightDtype::Int8).err().unwrap();
    let refused = refused.to_string();
    let expected = "expected rows of a multiple of 32 weights for int8, found 80";
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn the_selftest_of_the_cpu_holds() {
    let mut checks = Vec::new();
    selftest_on_cpu(150, &mut |check| checks.push(check));
    assert_eq!(checks.len(), 4 * 4 * 7);
    for check in checks {
        assert!(check.holds(), "{check:?}");
    }
}

/// A model of candle-transformers: the logits after one more token, at its position.
type Theirs = Box<dyn FnMut(&Tensor, usize) -> Result<Tensor>>;

/// A causal checkpoint loaded by candle-transformers.
fn theirs(case: &Case) -> Result<Theirs> {
    let mut config = case.config();
    let mut tensors = HashMap::new();
    for entry in std::fs::read_dir(&case.folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            let bytes = std::fs::read(case.folder.join(name)).unwrap();
            tensors.extend(load_buffer(&bytes, &Device::Cpu)?);
        }
    }
    let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let qwen3 = config["qk_norm"] == true || config["model_type"] == "qwen3";
    complete(&mut config);
    Ok(match config["model_type"].as_str() {
        Some("llama") => {
            let config: llama::LlamaConfig = serde_json::from_value(config).unwrap();
            let config = config.into_config(false);
            let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu)?;
            let model = llama::Llama::load(weights, &config)?;
            Box::new(move |token, position| model.forward(token, position, &mut cache))
        }
        Some("qwen3_moe") => {
            let config = serde_json::from_value(config).unwrap();
            let mut model = qwen3_moe::ModelForCausalLM::new(&config, weights)?;
            Box::new(move |token, position| model.forward(token, position))
        }
        _ if qwen3 => {
            let config = serde_json::from_value(config).unwrap();
            let mut model = qwen3::ModelForCausalLM::new(&config, weights)?;
            Box::new(move |token, position| model.forward(token, position))
        }
        _ => {
            let config = serde_json::from_value(config).unwrap();
            let mut model = qwen2::ModelForCausalLM::new(&config, weights)?;
            Box::new(move |token, position| model.forward(token, position))
        }
    })
}

/// Writes a configuration with the keys that candle-transformers reads.
fn complete(config: &mut Value) {
    // Unused without a sliding window, but not optional.
    for key in ["sliding_window", "max_window_layers"] {
        if config[key].is_null() {
            config[key] = json!(0);
        }
    }
    let rope = config["rope_parameters"].take();
    if rope.is_object() {
        config["rope_theta"] = rope["rope_theta"].clone();
        if rope["rope_type"] == "llama3" {
            config["rope_scaling"] = rope;
        }
    }
    if !config["num_local_experts"].is_null() {
        config["num_experts"] = config["num_local_experts"].take();
    }
}

/// Layers without experts among those with them are unknown to candle-transformers.
const UNKNOWN: &str = "qwen3-moe-mixed";

#[test]
fn causal_families_have_the_logits_of_candle_transformers() {
    let mut compared = 0;
    for case in Case::all() {
        let model = case.model(WeightDtype::F32);
        if model.info().rows.attention != Attention::Causal || case.name == UNKNOWN {
            continue;
        }
        let (mut next, mut want) = (theirs(&case).unwrap(), Vec::new());
        for (position, &token) in case.tokens.iter().enumerate() {
            let token = Tensor::new(&[[token]], &Device::Cpu).unwrap();
            let logits = next(&token, position).unwrap().flatten_all().unwrap();
            want.extend(logits.to_vec1::<f32>().unwrap());
        }
        let got = model.logits(&case.tokens).unwrap();
        let off = error(&got, &want, model.info().vocabulary.size);
        assert!(off < 1e-5, "{}: {off:.1e}", case.name);
        compared += 1;
    }
    assert_eq!(compared, 9);
}
