//! A pass of a step on a device: over all rows of a batch, or over those of a target or of its drafter.

use super::graphs::{Graphs, PassShape, padding};
use super::largest::{LargestStep, ROWS};
use super::{DeviceModel, failed};
use crate::arch::{Decoder, Work};
use crate::inputs::{InputBounds, Inputs, PassRows};
use crate::{LoadError, ModelInfo};
use kernels::device::{DeviceBatch, DeviceError, DeviceScores};
use kernels::{Accelerator, Backend, DeviceKv, Pass};
use step::{Batch, BatchOutput, Candidate};

/// The arrays of a network and their number of rows.
struct Workspace {
    work: Work<Accelerator>,
    rows: usize,
}

/// The rows and arrays of a pass, reused between steps.
pub(super) struct DevicePass {
    pass_rows: PassRows,
    inputs: Inputs,
    batch: DeviceBatch,
    scores: DeviceScores,
    candidates: Vec<Option<Candidate>>,
    workspace: Option<Workspace>,
}

/// The model and the memory that the passes of a step share.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) model: &'a DeviceModel,
    pub(super) kv: &'a DeviceKv,
    pub(super) bounds: &'a InputBounds,
    /// Maximum rows of an attention tile.
    pub(super) tile: usize,
}

impl DevicePass {
    /// Allocates the arrays of the largest pass.
    pub(super) fn new(
        model: &DeviceModel,
        pass_rows: PassRows,
        step: &LargestStep,
    ) -> Result<Self, LoadError> {
        let (backend, device) = (&model.backend, model.backend.device());
        let (network, info) = network(model, pass_rows);
        let work = Work::new(backend, info, step.rows);
        let work = work.map_err(|error| LoadError::Setup(error.to_string()))?;
        let mut scores = DeviceScores::default();
        scores.reserve(network.head(), step.rows).map_err(failed)?;
        if let Some(table) = network.soft() {
            scores.reserve_soft(table, step.rows).map_err(failed)?;
        }
        let mut batch = DeviceBatch::default();
        batch.reserve(device, &step.batch(&model.info)).map_err(failed)?;
        Ok(Self {
            pass_rows,
            inputs: Inputs::default(),
            batch,
            scores,
            candidates: Vec::new(),
            workspace: Some(Workspace { work, rows: step.rows }),
        })
    }

    /// Uploads its rows of a batch and launches their pass.
    pub(super) fn launch(
        &mut self,
        shared: Shared<'_>,
        graphs: &mut Graphs,
        batch: &Batch,
    ) -> Result<(), String> {
        self.inputs.fill(batch, self.pass_rows, shared.bounds)?;
        // The target makes the batch's copies of pages, also where all rows are its drafter's.
        if self.is_idle() && (self.pass_rows == PassRows::Open || batch.copies.is_empty()) {
            return Ok(());
        }
        self.run(shared, graphs, batch).map_err(|error| error.to_string())
    }

    /// Returns true if it has no rows.
    fn is_idle(&self) -> bool {
        self.pass_rows != PassRows::All && self.inputs.tokens.is_empty()
    }

    fn run(
        &mut self,
        shared: Shared<'_>,
        graphs: &mut Graphs,
        batch: &Batch,
    ) -> candle_core::Result<()> {
        let Shared { model, kv, bounds, tile } = shared;
        let backend = &model.backend;
        let (network, info) = network(model, self.pass_rows);
        let arrays = self.inputs.arrays(batch);
        let pad = padding(arrays.tokens.len());
        backend.upload(&arrays, &bounds.limits(tile, pad), &mut self.batch)?;
        let mask = self.inputs.mask;
        if self.is_idle() {
            let pass = Pass { arrays: &arrays, batch: &self.batch, kv, mask, adapted: &[] };
            return backend.copy_pages(&pass);
        }
        let rows = self.batch.rows();
        let fits = |workspace: &Workspace| workspace.rows >= rows;
        if !self.workspace.as_ref().is_some_and(fits) {
            self.workspace = None;
            let rows = rows.next_power_of_two().max(ROWS);
            let work = Work::new(backend, info, rows)?;
            self.workspace = Some(Workspace { work, rows });
        }
        let Some(Workspace { work, .. }) = &mut self.workspace else {
            return Ok(());
        };
        self.scores.reserve(network.head(), self.batch.scored())?;
        if let Some(table) = network.soft() {
            self.scores.reserve_soft(table, self.batch.scored())?;
        }
        let pass = Pass { arrays: &arrays, batch: &self.batch, kv, mask, adapted: &[] };
        backend.copy_pages(&pass)?;
        let scores = &mut self.scores;
        let shape = PassShape { pass_rows: self.pass_rows, batch: pass.batch.shape() };
        let ran = graphs.run(backend.device(), shape, || {
            let hidden = network.hidden(backend, &pass, work, &|| Ok(()));
            hidden
                .and_then(|()| network.score(backend, &pass, work, scores))
                .map_err(|error| DeviceError(error.to_string()))
        });
        Ok(ran?)
    }

    /// Waits for the launched pass and appends its output.
    pub(super) fn collect(&mut self, output: &mut BatchOutput) -> Result<(), String> {
        self.candidates.clear();
        let scored = &self.inputs.scorers;
        if !self.inputs.tokens.is_empty() {
            // A pass without scored rows is awaited by a read as well, so that a failure is its own.
            let read = self.scores.read(scored.len().max(1), &mut self.candidates);
            read.map_err(|error| error.to_string())?;
            self.candidates.truncate(scored.len());
            let tops = scored.iter().map(|row| row.tops as usize).sum();
            let read = self.scores.read_tops(tops, &mut output.tops);
            read.map_err(|error| error.to_string())?;
        }
        for (number, record) in self.candidates.iter().enumerate() {
            match record {
                Some(candidate) => output.candidates.push(*candidate),
                None => return Err(format!("the logits of scored row {number} are not finite")),
            }
        }
        Ok(())
    }
}

/// The network that reads these rows, and its sizes.
fn network(model: &DeviceModel, pass_rows: PassRows) -> (&Decoder<Accelerator>, &ModelInfo) {
    let drafter = model.decoder.drafter().filter(|_| pass_rows == PassRows::Open);
    drafter.unwrap_or((&model.decoder, &model.info))
}
