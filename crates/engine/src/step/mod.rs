//! One step: its batch, the sequences in it, and the lists that the next step reuses.

mod pack;

use decode::{ForwardKind, Offset, Proposal};
use step::{Batch, BatchOutput, ExecutorSpec, TokenId};

use crate::cache::ForwardPlan;
use crate::event::StepTrace;
use crate::pages::{OutOfPages, PagePool};
use crate::sequence::Sequence;

use pack::{Packer, ScoredLane};

/// A planned step. The caller runs its batch and hands it back.
#[derive(Debug, Default)]
#[must_use = "hand a planned step back with `Engine::apply`, `Engine::fail` or `Engine::give_up`"]
pub struct StepPlan {
    pub(crate) batch: Batch,
    /// The sequences of the step, in the order of their rows.
    pub(crate) planned: Vec<Planned>,
    /// Offsets of the scored rows.
    pub(crate) scored: Vec<Offset>,
    /// Entries of [`BatchOutput::tops`] that the batch asks for.
    pub(crate) tops: usize,
}

/// A sequence of a step.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Index among the running sequences.
    pub(crate) index: usize,
    /// End of its offsets in [`StepPlan::scored`]; they begin where the last sequence's ended.
    pub(crate) scored_end: u32,
    pub(crate) kind: ForwardKind,
    /// Its forward is a chunk of its prompt, after which the decoder takes no step.
    pub(crate) is_chunk: bool,
    /// The report of a traced sequence on this forward.
    pub(crate) trace: Option<Box<StepTrace>>,
}

impl StepPlan {
    /// The batch that the executor runs.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Returns true if an output answers the batch.
    ///
    /// # Errors
    /// The expected and the found sizes, in words.
    pub(crate) fn check(&self, output: &BatchOutput) -> Result<(), String> {
        let expected = (self.scored.len(), self.tops);
        let found = (output.candidates.len(), output.tops.len());
        if found == expected {
            return Ok(());
        }
        Err(format!(
            "the model returned {} candidates and {} tops, expected {} and {}",
            found.0, found.1, expected.0, expected.1
        ))
    }

    fn clear(&mut self) {
        self.batch.clear();
        self.planned.clear();
        self.scored.clear();
        self.tops = 0;
    }
}

/// Lists that steps reuse, so that a step allocates nothing.
#[derive(Debug)]
pub(crate) struct StepBuffers {
    /// The lists of the last step; `None` while a step is planned or runs.
    idle: Option<StepPlan>,
    /// The forward of the sequence that is being planned.
    pub(crate) forward: ForwardPlan,
    /// The scored offsets of its lanes.
    scored_lanes: Vec<ScoredLane>,
    /// The model's proposals for the sequence that is being applied.
    pub(crate) proposals: Vec<Proposal>,
    mask: Option<TokenId>,
    /// Tokens with a logit.
    vocab_size: u32,
}

impl StepBuffers {
    pub(crate) fn new(spec: &ExecutorSpec) -> Self {
        Self {
            idle: Some(StepPlan::default()),
            forward: ForwardPlan::default(),
            scored_lanes: Vec::new(),
            proposals: Vec::new(),
            mask: spec.mask,
            vocab_size: spec.vocab_size,
        }
    }

    /// Returns true if a step was planned that has been neither applied nor failed.
    pub(crate) fn is_under_way(&self) -> bool {
        self.idle.is_none()
    }

    /// An empty step.
    pub(crate) fn begin(&mut self) -> StepPlan {
        self.idle.take().unwrap_or_default()
    }

    /// Takes the lists of a step back.
    pub(crate) fn end(&mut self, mut step: StepPlan) {
        step.clear();
        self.idle = Some(step);
    }

    /// Appends the forward in [`Self::forward`] to the batch.
    ///
    /// # Errors
    /// If the sequence took more pages than it was promised; the batch must not run then.
    pub(crate) fn pack(
        &mut self,
        step: &mut StepPlan,
        sequence: &mut Sequence,
        pages: &mut PagePool,
    ) -> Result<(), OutOfPages> {
        let mut packer = Packer {
            batch: &mut step.batch,
            scored: &mut step.scored,
            scored_lanes: &mut self.scored_lanes,
            tops: &mut step.tops,
            pool: pages,
            mask: self.mask,
            vocab_size: self.vocab_size,
        };
        packer.pack(sequence, &self.forward)
    }
}
