//! The grammar's work on one sequence, as a value that any thread may run.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

use decode::{Decoder, Effect, ForwardKind, Proposal};
use step::TopToken;

use super::SequenceId;
use crate::counts::ByRole;
use crate::event::StepTrace;
use crate::request::ClientId;

/// The decoder's step of one sequence under a grammar. The result depends on the sequence alone,
/// never on when or where the job runs.
///
/// [`Engine::take_job`](crate::Engine::take_job) hands it out, [`Self::run`] does the work, and
/// [`Engine::settle`](crate::Engine::settle) takes it back.
#[derive(Debug)]
pub struct GrammarJob {
    pub(crate) id: SequenceId,
    pub(crate) client: ClientId,
    pub(crate) decoder: Decoder,
    pub(crate) effects: Vec<Effect>,
    /// The output of the sequence's forward; `None` before its first forward.
    pub(crate) forward: Option<ForwardOutput>,
    /// The grammar panicked: the decoder must not be used.
    pub(crate) panicked: bool,
}

/// The output of a forward for one sequence.
#[derive(Debug)]
pub(crate) struct ForwardOutput {
    pub(crate) kind: ForwardKind,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) tops: Vec<TopToken>,
    /// The report of a traced sequence on the forward.
    pub(crate) trace: Option<Box<StepTrace>>,
}

impl GrammarJob {
    /// The sequence that the work is for.
    pub fn sequence(&self) -> SequenceId {
        self.id
    }

    /// The client that the work is for.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Does the work, once. A panic of the grammar fails the sequence and nothing else.
    pub fn run(&mut self) {
        let (decoder, effects, forward) = (&mut self.decoder, &mut self.effects, &self.forward);
        let work = || match forward {
            None => decoder.open(effects),
            Some(forward) => decoder.apply(&forward.proposals, effects),
        };
        self.panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
    }
}

/// A sequence's decoder, which a job takes along.
#[derive(Debug)]
pub(crate) struct DecoderCell(State);

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the decoder is nearly always here, and a box would allocate in the step loop"
)]
enum State {
    Here(Decoder),
    /// With the lanes that were active when it left.
    Lent(ByRole),
}

impl DecoderCell {
    pub(crate) fn new(decoder: Decoder) -> Self {
        Self(State::Here(decoder))
    }

    /// Returns true if a job has the decoder. Nothing else may be asked of it then.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.0, State::Lent(_))
    }

    /// The decoder, for a job.
    pub(crate) fn lend(&mut self) -> Decoder {
        let lanes = self.active_lanes();
        match std::mem::replace(&mut self.0, State::Lent(lanes)) {
            State::Here(decoder) => decoder,
            State::Lent(_) => unreachable!("a sequence has one job at a time"),
        }
    }

    /// Takes the decoder back.
    pub(crate) fn put(&mut self, decoder: Decoder) {
        self.0 = State::Here(decoder);
    }

    /// The decoder, for a step without a job.
    pub(crate) fn own(&mut self) -> &mut Decoder {
        match &mut self.0 {
            State::Here(decoder) => decoder,
            State::Lent(_) => unreachable!("a sequence whose job runs is in no step"),
        }
    }

    /// The active lanes; while a job runs, those before it.
    pub(crate) fn active_lanes(&self) -> ByRole {
        let decoder = match &self.0 {
            State::Lent(lanes) => return *lanes,
            State::Here(decoder) => decoder,
        };
        let (mut lanes, tree) = (ByRole::default(), decoder.tree());
        for id in tree.active() {
            *lanes.of(tree.get(*id).role) += 1;
        }
        lanes
    }
}

impl Deref for DecoderCell {
    type Target = Decoder;

    fn deref(&self) -> &Decoder {
        match &self.0 {
            State::Here(decoder) => decoder,
            State::Lent(_) => unreachable!("a sequence whose job runs is in no step"),
        }
    }
}
