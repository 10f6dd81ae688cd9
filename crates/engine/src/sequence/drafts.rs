//! A sequence whose next step verifies drafts of a draft model, or copied from its text.

use decode::{CommitKind, Effect, Offset, Place, TokenId, as_count, as_index};

use super::Sequence;
use super::lookup::end_of_match;
use crate::report::StepReport;
use crate::request::Penalties;

/// Last tokens of an answer that must occur in its prediction before more of it is expected.
const MATCHED: u32 = 1;

/// Drafts for the next step of a sequence.
#[derive(Debug, Default)]
pub(crate) struct DraftState {
    /// Drafts were asked for and are not there yet.
    pub(crate) awaited: bool,
    /// A drafter behind the model's layers fills open blocks.
    pub(super) in_layers: bool,
    /// Scratch: drafts that are copied from the text.
    copied: Vec<TokenId>,
    /// An index in the predicted text, and the offset of the answer that it stands for.
    aligned: (usize, usize),
}

impl DraftState {
    /// No drafts yet; `in_layers`: a drafter behind the model's layers fills open blocks.
    pub(super) fn new(in_layers: bool) -> Self {
        Self { in_layers, ..Self::default() }
    }
}

impl Sequence {
    /// Returns true if it can be in a step.
    pub(crate) fn is_ready(&self) -> bool {
        !self.decoder.is_lent() && !self.drafts.awaited
    }

    /// Drafts that its next step can verify. With penalties none: the tokens of a step do not count
    /// for each other, so the text would not be the model's own.
    pub(crate) fn wants_drafts(&self) -> u32 {
        match self.request.logits.penalties == Penalties::default() {
            true => self.decoder.wants_drafts(),
            false => 0,
        }
    }

    /// The prompt and the committed tokens left of the frontier.
    pub(crate) fn text(&self) -> Vec<TokenId> {
        let canvas = self.decoder.canvas();
        let committed = Offset::ZERO.to(canvas.frontier()).iter();
        let committed = committed.filter_map(|offset| canvas.get(offset));
        self.request.prompt.iter().copied().chain(committed).collect()
    }

    /// The draft at a place, if there is one.
    pub(crate) fn draft_at(&self, place: Place) -> Option<TokenId> {
        let first = self.layout.place_of(self.decoder.canvas().frontier());
        let number = place.checked_distance_from(first)?;
        self.decoder.drafts().get(as_index(number)).copied()
    }

    /// The index in the predicted text at which it goes on: 0, or after its tokens that are the last ones of
    /// the answer, at least `matched` of them; of several such places the one nearest to where the answer
    /// would be had it been the prediction since the last match.
    fn place_in_prediction(&mut self, matched: u32) -> Option<usize> {
        let (canvas, prediction) = (self.decoder.canvas(), &self.request.given.prediction);
        let generated = as_index(canvas.frontier().get());
        let token = |index: usize| match index.checked_sub(prediction.len()) {
            None => Some(prediction[index]),
            Some(offset) => canvas.get(Offset::new(as_count(offset))),
        };
        let (known, length) = (prediction.len(), prediction.len() + generated);
        let (index, offset) = self.drafts.aligned;
        let near = index + generated - offset;
        let shortest = generated.min(as_index(matched));
        let start = match generated {
            0 => Some(0),
            _ => end_of_match(&token, length, known, near, shortest),
        };
        self.drafts.aligned = (start.unwrap_or(near), generated);
        start
    }

    /// Drafts what followed the text's last tokens where they occur before, at least `matched` of them;
    /// after the text's end, the copy goes on with itself. At most `count` drafts; their number.
    pub(crate) fn copy_drafts(&mut self, matched: u32, count: u32) -> u32 {
        let mut drafts = std::mem::take(&mut self.drafts.copied);
        drafts.clear();
        if !self.request.given.prediction.is_empty() {
            let rest = self.place_in_prediction(matched).unwrap_or(usize::MAX);
            let rest = self.request.given.prediction.get(rest..).unwrap_or_default();
            drafts.extend(rest.iter().take(as_index(count)));
            return self.offer_copied(drafts);
        }
        let canvas = self.decoder.canvas();
        let prompt = &self.request.prompt;
        let length = prompt.len() + as_index(canvas.frontier().get());
        let token = |index: usize| match index.checked_sub(prompt.len()) {
            None => Some(prompt[index]),
            Some(offset) => canvas.get(Offset::new(as_count(offset))),
        };
        if let Some(start) = end_of_match(&token, length, length, length, as_index(matched)) {
            let copied = (start..length).cycle().take(as_index(count));
            drafts.extend(copied.map_while(token));
        }
        self.offer_copied(drafts)
    }

    /// Shows the decoder what it expects of the predicted text.
    pub(crate) fn expect_prediction(&mut self) {
        if self.request.decoding.decoder.expected == 0 {
            return;
        }
        let matched = self.place_in_prediction(MATCHED);
        // A token of the prediction that is another one in the answer hides no more of the rest.
        let start = matched.unwrap_or(self.drafts.aligned.0);
        let rest = self.request.given.prediction.get(start..).unwrap_or_default();
        self.decoder.own().expect(rest);
    }

    /// Takes and counts drafts, and keeps their list.
    fn offer_copied(&mut self, drafts: Vec<TokenId>) -> u32 {
        self.offer_drafts(&drafts);
        self.drafts.copied = drafts;
        let drafted = as_count(self.decoder.drafts().len());
        self.statistics.cost.draft_model.drafted += drafted;
        drafted
    }

    /// Takes the drafts for its next step.
    pub(crate) fn offer_drafts(&mut self, drafts: &[TokenId]) {
        self.decoder.own().offer_drafts(drafts);
    }

    /// Counts the tokens of the predicted text that a forward verified, and the right ones.
    fn settle_guesses(&mut self, report: &mut StepReport) {
        let (verified, right) = self.decoder.verified();
        self.statistics.cost.draft_model.drafted += verified;
        report.drafts.drafted += u64::from(verified);
        self.statistics.count_verified(right, report);
    }

    /// Counts the drafts of a drafter behind the model's layers that a forward checked, and the right ones.
    fn settle_checked(&mut self, report: &mut StepReport) {
        let checked = self.decoder.checked();
        if self.drafts.in_layers && checked > 0 {
            let right = self.decoder.confirmed().len();
            self.statistics.cost.draft_model.drafted += checked;
            report.drafts.drafted += u64::from(checked);
            self.statistics.count_verified(right, report);
        }
    }

    /// Follows what a step made of its drafts. Those that it confirmed were forwarded with true tokens
    /// before them, so their K/V are final.
    pub(super) fn settle_drafts(&mut self, report: &mut StepReport) {
        let decoder = &self.request.decoding.decoder;
        if decoder.expected > 0 {
            return self.settle_guesses(report);
        }
        if decoder.schedule.drafts() == 0 {
            return self.settle_checked(report);
        }
        let verified = self.effects.iter().filter_map(|effect| match effect {
            Effect::Commit(commit) if commit.kind == CommitKind::Draft => Some(commit.offset),
            _ => None,
        });
        let (count, last) =
            verified.fold((0, None), |(count, _), offset| (count + 1, Some(offset)));
        if let Some(last) = last {
            self.kv.seal(self.layout.place_of(last));
            self.statistics.count_verified(count, report);
        }
    }
}
