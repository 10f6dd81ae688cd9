//! Drafts for sequences whose schedule takes them: copied from the text,
//! or asked for after a step and given before the next.

use decode::as_count;

use crate::draft_job::{DraftJob, Drafts};

use super::Engine;

impl Engine {
    /// Copies the drafts of a sequence's next step from its text, or asks for them if the caller gives
    /// them.
    pub(super) fn ask_drafts(&mut self, index: usize) {
        let sequence = self.scheduler.sequence_mut(index);
        sequence.expect_prediction();
        let count = sequence.wants_drafts();
        if count == 0 || sequence.finished().is_some() {
            return;
        }
        if let Some(matched) = sequence.request.decoding.decoder.schedule.copies() {
            self.report.drafts.drafted += u64::from(sequence.copy_drafts(matched, count));
            return;
        }
        let Some(jobs) = &mut self.outbox.drafts else {
            return;
        };
        sequence.drafts.awaited = true;
        jobs.push_back(DraftJob {
            sequence: sequence.id,
            client: sequence.request.sender.client,
            text: sequence.text(),
            count,
        });
    }

    /// Gives a sequence its drafts, of which it may use none; those for a sequence that has ended are
    /// dropped. Not callable between [`Self::plan`] and [`Self::apply`] or [`Self::fail`].
    pub fn settle_drafts(&mut self, drafts: &Drafts) {
        self.check_between_steps();
        let Some(index) = self.scheduler.index_of(drafts.sequence) else {
            return;
        };
        let vocab_size = self.limits.vocab_size;
        let known = |token: &&u32| **token < vocab_size;
        let known = drafts.tokens.iter().take_while(known).count();
        self.scheduler.wait_anew(index);
        let sequence = self.scheduler.sequence_mut(index);
        sequence.drafts.awaited = false;
        sequence.offer_drafts(&drafts.tokens[..known]);
        let drafted = as_count(sequence.decoder.drafts().len());
        let counts = &mut sequence.statistics.cost.draft_model;
        counts.forwards += drafts.forwards;
        counts.positions += drafts.positions;
        counts.drafted += drafted;
        self.report.drafts.drafted += u64::from(drafted);
    }
}
