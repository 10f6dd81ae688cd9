//! DFlash drafters: drafts and texts are those of the CPU.

use super::texts::run_with;
use super::{near, sizes};
use crate::backends::PAGES;
use crate::common::{execute, push, row, sized};
use asynclane_cuda_lab::emulated;
use asynclane_model::{
    Checkpoint, DeviceConfig, DeviceExecutor, DeviceModel, Files, KvMemory, Model, WeightDtype,
};
use engine::decoding::DecodingSpec;
use engine::{Capabilities, Request};
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, Row, Sampling, Score};

const FOLDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crates/model/tests/model/fixtures/dflash/qwen3");

/// A target with its drafter.
pub(super) fn pair(dtype: WeightDtype) -> Checkpoint {
    let folder = |part: &str| Files::folder(format!("{FOLDER}/{part}"));
    let target = Checkpoint::open(&folder("target")).unwrap();
    target.with_drafter(&folder("drafter")).unwrap().with_dtype(dtype)
}

fn on_device(dtype: WeightDtype) -> DeviceExecutor {
    let model = DeviceModel::load(&emulated(), pair(dtype)).unwrap();
    let config = sizes(&model);
    DeviceExecutor::new(model, config).unwrap()
}

/// Rows of the target and of its drafter in one pass, for two sequences.
fn mixed() -> Batch {
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
    for (dtype, tolerance) in [(WeightDtype::F32, 1e-5), (WeightDtype::Bf16, 8e-2)] {
        let mut cpu = sized(Model::load(pair(WeightDtype::F32)).unwrap(), PAGES, 1);
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

#[test]
fn drafts_and_texts_match_the_cpu() {
    let spec = DecodingSpec::parse("self_speculation,window=8").unwrap();
    let requests = || {
        let prompt =
            |length: u32| (0..3 * length).map(move |number| 3 + (7 * number + length) % 41);
        let prompts = (1..9).map(prompt);
        let requests = prompts.zip(9..).map(|(prompt, budget)| {
            Request::new(prompt.collect(), budget, spec.resolve().unwrap())
        });
        requests.collect()
    };
    let block_drafts = Capabilities { block_drafts: true, ..Capabilities::default() };
    let cpu = sized(Model::load(pair(WeightDtype::F32)).unwrap(), 200, 1);
    let mut cpu = Noted { executor: cpu, drafts: Vec::new() };
    let want = run_with(&block_drafts, &mut cpu, requests());
    let model = DeviceModel::load(&emulated(), pair(WeightDtype::F32)).unwrap();
    let slots = 8 * 200;
    let config = DeviceConfig {
        sequences: 8,
        kv: KvMemory::Bytes(slots * model.kv_bytes_per_position() as u64),
        ..sizes(&model)
    };
    let executor = DeviceExecutor::new(model, config).unwrap();
    let mut device = Noted { executor, drafts: Vec::new() };
    let found = run_with(&block_drafts, &mut device, requests());
    for (found, want) in found.iter().zip(&want) {
        assert_eq!(found.text, want.text);
    }
    assert_eq!(device.drafts, cpu.drafts);
    assert!(device.drafts.iter().any(|drafts| !drafts.is_empty()));
}
