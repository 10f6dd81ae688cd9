//! DFlash drafters: drafts and texts are those of the CPU.

use super::texts::run_with;
use super::{near, sizes};
use crate::backends::PAGES;
use crate::common::{execute, push, row, sized};
use asynclane_cuda_lab::emulated;
use asynclane_model::{
    Checkpoint, DeviceConfig, DeviceExecutor, DeviceModel, Files, KvDtype, KvMemory, Model,
    WeightDtype,
};
use engine::decoding::DecodingSpec;
use engine::{Capabilities, Request};
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, Row, Sampling, Score};

const FOLDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crates/model/tests/model/fixtures/dflash/qwen3");

fn folder(part: &str) -> Files {
    Files::folder(format!("{FOLDER}/{part}"))
}

fn target(dtype: WeightDtype) -> Checkpoint {
    Checkpoint::open(&folder("target")).unwrap().with_dtype(dtype)
}

/// A target with its drafter.
pub(super) fn pair(dtype: WeightDtype) -> Checkpoint {
    target(dtype).with_drafter(&folder("drafter")).unwrap().with_dtype(dtype)
}

fn on_device(dtype: WeightDtype) -> DeviceExecutor {
    let model = DeviceModel::load(&emulated(), pair(dtype)).unwrap();
    let config = sizes(&model);
    DeviceExecutor::new(model, config).unwrap()
}

/// Rows of the target and of its drafter in one pass, for two sequences.
pub(super) fn mixed() -> Batch {
    let mut batch = Batch::default();
    for (first, count, pages) in [(3, 17, [5, 2, 0, 3]), (20, 9, [7, 4, 1, 6])] {
        let end = count + 8;
        let final_rows = (0..count).map(|position| row(first + position, position, position + 1));
        let open = (count..end).map(|position| {
            let token = if position == count { 11 } else { 45 };
            Row { open: true, score: Score::Candidate, ..row(token, position, end) }
        });
        push(&mut batch, final_rows.chain(open).collect(), &pages, Sampling::GREEDY);
    }
    batch
}

#[test]
fn candidates_match_the_cpu() {
    for (dtype, tolerance) in
        [(WeightDtype::F32, 1e-5), (WeightDtype::Bf16, 8e-2), (WeightDtype::Int8, 0.4)]
    {
        let own = if dtype == WeightDtype::Int8 { dtype } else { WeightDtype::F32 };
        let mut cpu = sized(Model::load(pair(own)).unwrap(), PAGES, 1);
        let mut device = on_device(dtype);
        assert_eq!(device.spec(), cpu.spec());
        let want = execute(&mut cpu, &mixed()).candidates;
        let found = execute(&mut device, &mixed()).candidates;
        near(&found, &want, tolerance, dtype.name());
        // From a captured graph.
        execute(&mut device, &mixed());
        assert_eq!(execute(&mut device, &mixed()).candidates, found);
    }
}

/// An executor that notes the drafts of every pass.
struct Noted<E> {
    executor: E,
    drafts: Vec<Vec<u32>>,
}

impl<E: Executor> Executor for Noted<E> {
    fn spec(&self) -> ExecutorSpec {
        self.executor.spec()
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        self.executor.execute(batch, output)?;
        let scored = batch.rows.iter().filter(|row| row.score.is_wanted());
        let drafts = scored.zip(&output.candidates).filter(|(row, _)| row.open);
        self.drafts.push(drafts.map(|(_, candidate)| candidate.token).collect());
        Ok(())
    }
}

/// Requests with a decoder.
fn requests(spec: &str) -> Vec<Request> {
    let spec = DecodingSpec::parse(spec).unwrap();
    let prompt = |length: u32| (0..3 * length).map(move |number| 3 + (7 * number + length) % 41);
    let prompts = (1..9).map(prompt);
    let requests = prompts
        .zip(9..)
        .map(|(prompt, budget)| Request::new(prompt.collect(), budget, spec.resolve().unwrap()));
    requests.collect()
}

const DRAFTED: &str = "self_speculation,window=8";

fn drafting() -> Capabilities {
    Capabilities { block_drafts: true, ..Capabilities::default() }
}

/// An executor with room for the texts of all requests.
fn for_texts(checkpoint: Checkpoint) -> DeviceExecutor {
    let model = DeviceModel::load(&emulated(), checkpoint).unwrap();
    let slots = 8 * 200;
    let config = DeviceConfig {
        sequences: 8,
        kv: KvMemory::Bytes(slots * model.kv_bytes_per_position() as u64),
        ..sizes(&model)
    };
    DeviceExecutor::new(model, config).unwrap()
}

#[test]
fn drafts_and_texts_match_the_cpu() {
    let cpu = sized(Model::load(pair(WeightDtype::F32)).unwrap(), 200, 1);
    let mut cpu = Noted { executor: cpu, drafts: Vec::new() };
    let want = run_with(&drafting(), &mut cpu, requests(DRAFTED));
    let executor = for_texts(pair(WeightDtype::F32));
    let mut device = Noted { executor, drafts: Vec::new() };
    let found = run_with(&drafting(), &mut device, requests(DRAFTED));
    for (found, want) in found.iter().zip(&want) {
        assert_eq!(found.text, want.text);
    }
    assert_eq!(device.drafts, cpu.drafts);
    assert!(device.drafts.iter().any(|drafts| !drafts.is_empty()));
}

/// In int8, and with keys and values of both networks in int8: texts are those of the target without its
/// drafter, together and alone.
#[test]
fn texts_in_int8_are_those_of_the_target_alone() {
    let open = |dtype, kv: Option<KvDtype>, both: bool| {
        let opened = if both { pair(dtype) } else { target(dtype) };
        match kv {
            Some(kv) => opened.with_kv_dtype(kv),
            None => opened,
        }
    };
    for (dtype, kv) in [(WeightDtype::Int8, None), (WeightDtype::F32, Some(KvDtype::Int8))] {
        let mut alone = for_texts(open(dtype, kv, false));
        let plain = Capabilities::default();
        let want = run_with(&plain, &mut alone, requests("autoregressive"));
        let executor = for_texts(open(dtype, kv, true));
        let mut both = Noted { executor, drafts: Vec::new() };
        let found = run_with(&drafting(), &mut both, requests(DRAFTED));
        for (found, want) in found.iter().zip(&want) {
            assert_eq!(found.text, want.text, "{dtype:?} {kv:?}");
        }
        assert!(both.drafts.iter().any(|drafts| !drafts.is_empty()));
        let one = requests(DRAFTED).remove(4);
        let single = run_with(&drafting(), &mut both, vec![one]);
        assert_eq!(single[0].text, found[4].text, "{dtype:?} {kv:?}");
    }
}
