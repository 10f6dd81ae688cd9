//! In the steady state plan, apply, events and report allocate nothing.

use std::sync::Arc;
use std::time::Duration;

use asynclane_engine::decoding::DecodingSpec;
use asynclane_engine::{ByPriority, Capabilities, Engine, EngineConfig, Request};
use sim::{Fidelity, SimConfig, SimExecutor};
use step::{BatchOutput, Executor, LogitShift};

/// Tokens of every answer; the model's texts never end.
const BUDGET: u32 = 256;
/// Sequences in the batch.
const SEQUENCES: u32 = 64;

fn engine(logit_shift: LogitShift) -> (Engine, SimExecutor) {
    let model = SimConfig {
        pages: 4096,
        fidelity: Fidelity::Free,
        text_len: 4096..4097,
        logit_shift,
        ..SimConfig::default()
    };
    let executor = SimExecutor::new(model).expect("a valid model");
    let config = EngineConfig {
        max_running: SEQUENCES,
        max_waiting: SEQUENCES,
        row_budget: 100_000,
        long_quantum: 100_000,
        prefill_chunk: 0,
        grammar_timeout: Duration::ZERO,
        prefix_cache: true,
        max_model_len: None,
        wait_order: Arc::new(ByPriority),
        classes: Arc::default(),
        capabilities: Capabilities::default(),
    };
    (Engine::new(&config, executor.spec()), executor)
}

fn submit(engine: &mut Engine, settings: &str) {
    let decoding = DecodingSpec::parse(settings).and_then(|spec| spec.resolve());
    let decoding = decoding.expect("valid settings");
    for seed in 0..SEQUENCES {
        let mut request = Request::new(vec![20, 21, 22 + seed], BUDGET, decoding.clone());
        request.sampling.seed = u64::from(seed);
        engine.submit(request).expect("there is room");
    }
}

/// Steps and allocations of plan, apply, events and report, from the fourth step of a batch to its
/// last. The same requests have run before, so all lists have their final capacity.
fn measure(settings: &str, logit_shift: LogitShift) -> (u32, u64) {
    let (mut engine, mut executor) = engine(logit_shift);
    let mut output = BatchOutput::default();
    let (mut steps, mut count) = (0, 0);
    for measured in [false, true] {
        submit(&mut engine, settings);
        for step in 0.. {
            let mut planned = None;
            let plan = allocation_counter::measure(|| {
                engine.clear_report();
                planned = engine.plan();
            });
            let Some(planned) = planned else {
                break;
            };
            executor.execute(planned.batch(), &mut output).expect("a sound batch");
            let apply = allocation_counter::measure(|| {
                engine.apply(planned, &output, Duration::from_millis(step));
                while engine.poll_event().is_some() {}
                engine.report();
            });
            if measured && step > 2 {
                steps += 1;
                count += plan.count_total + apply.count_total;
            }
        }
    }
    (steps, count)
}

#[test]
fn a_step_allocates_nothing_once_its_lists_have_their_sizes() {
    let decoders = [
        "balanced",
        "vanilla",
        "fast_dllm_dual",
        "adablock",
        "d3llm",
        "dream",
        "window_diffusion",
        "balanced,cache=elastic",
        "fast_dllm_dual,commit=entropy_bound",
        "fast_dllm_dual,commit=draft_verify",
        "fast_dllm_dual,commit=nested_drafts",
    ];
    for settings in decoders {
        for logit_shift in [LogitShift::None, LogitShift::One] {
            let (steps, count) = measure(settings, logit_shift);
            println!("{settings}, {logit_shift:?}: {count} allocations in {steps} steps");
            assert!(count == 0 && steps > 10, "{settings}: {count} in {steps}");
        }
    }
}
