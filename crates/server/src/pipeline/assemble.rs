//! Assembles one choice from the events of its sequence: text, ids, finish reason.

use engine::{Event, FinishReason, SequenceStats, StepTrace, TokenLogprob};
use step::TokenId;
use text::{Part, PartStream, TextStream};

use crate::pipeline::logprobs::{ScoredToken, Scorer};
use crate::pipeline::thought::ThoughtCount;

/// The additions of some events to a choice. The joined deltas of a choice are its whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Index of the choice.
    pub index: usize,
    /// New text; text that is held back comes with a later delta.
    pub text: String,
    /// The parts that the text completes; `None` where answers have no parts.
    pub parts: Option<Vec<Part>>,
    /// The stop string that ended the choice, by its place in the request; with the finish reason.
    pub stop_string: Option<usize>,
    /// The stop token that ended the choice; with the finish reason.
    pub stop_token: Option<TokenId>,
    /// True if the choice called a function; known with the finish reason.
    pub called: bool,
    /// True if the choice ended inside a call; known with the finish reason.
    pub cut_call: bool,
    /// Tokens of the reasoning; known with the finish reason.
    pub reasoning_tokens: usize,
    /// Ids of the tokens delivered.
    pub token_ids: Vec<TokenId>,
    /// The same tokens with their log-probabilities, if requested.
    pub scored: Vec<ScoredToken>,
    /// The finish reason, in the last delta with text.
    pub finish: Option<FinishReason>,
    /// The sequence began to run.
    pub started: bool,
    /// The cost up to the step that ended the answer; in the last delta only.
    pub stats: Option<SequenceStats>,
    /// Steps of a traced sequence.
    pub steps: Vec<StepTrace>,
}

impl Delta {
    /// Appends what a client sees of `next`, a later delta of the same choice.
    pub fn join(&mut self, next: Self) {
        self.text.push_str(&next.text);
        if let Some(parts) = next.parts {
            self.parts.get_or_insert_default().extend(parts);
        }
        self.called |= next.called;
        self.cut_call |= next.cut_call;
        self.stop_string = self.stop_string.or(next.stop_string);
        self.stop_token = self.stop_token.or(next.stop_token);
        self.reasoning_tokens += next.reasoning_tokens;
        self.token_ids.extend(next.token_ids);
        self.scored.extend(next.scored);
        self.finish = self.finish.or(next.finish);
    }

    /// True if it has anything that a client sees.
    pub fn is_visible(&self) -> bool {
        let has_text = match &self.parts {
            Some(parts) => !parts.is_empty(),
            None => !self.text.is_empty(),
        };
        has_text || self.finish.is_some()
    }

    /// Its parts; an answer without parts is text.
    pub fn parts(&self) -> Vec<Part> {
        match &self.parts {
            Some(parts) => parts.clone(),
            None if self.text.is_empty() => Vec::new(),
            None => vec![Part::Text(self.text.clone())],
        }
    }

    /// The API's name of its finish reason.
    pub fn finish_name(&self) -> Option<&'static str> {
        self.finish.map(|reason| match reason {
            FinishReason::Stop if self.has_called() => "tool_calls",
            reason => reason_name(reason),
        })
    }

    /// True if it ends a choice whose calls are complete.
    pub fn has_called(&self) -> bool {
        self.called && !self.cut_call
    }

    /// True if it has anything that a reader or the record needs now.
    pub fn is_news(&self) -> bool {
        let has_text = self.started || !self.text.is_empty() || self.is_visible();
        has_text || self.stats.is_some() || !self.steps.is_empty()
    }
}

/// The API's name of `reason`.
pub fn reason_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// The reason why a sequence ended without an answer, one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server failed; only the log has the reason.
    Failed(String),
    /// The grammar of the request cannot go on; the client gets the reason.
    Refused(String),
}

/// Turns the events of one sequence into the deltas of one choice.
#[derive(Clone, Debug)]
pub struct ChoiceAssembler {
    index: usize,
    stream: TextStream,
    /// The prompt's text (`echo`), until it is delivered.
    echo: String,
    /// Ids of the answer that are not delivered yet.
    held: Vec<TokenId>,
    /// The same tokens with their log-probabilities, if requested.
    held_scored: Vec<ScoredToken>,
    scorer: Option<Scorer>,
    /// Present where answers have parts.
    parts: Option<PartStream>,
    /// Present where answers have reasoning.
    thought: Option<ThoughtCount>,
    /// Given tokens that end the answer.
    tail: Vec<TokenId>,
    /// True if the choice called a function.
    called: bool,
    /// Number of pushed tokens that belong to the answer.
    used: usize,
    ended: bool,
    /// The cost of an ended traced sequence, until the trace of its last step arrives.
    last_step: Option<SequenceStats>,
    trace: bool,
}

impl ChoiceAssembler {
    /// Choice `index` with `echo` before its text.
    pub fn new(index: usize, stream: TextStream, echo: String) -> Self {
        Self {
            index,
            stream,
            echo,
            held: Vec::new(),
            held_scored: Vec::new(),
            scorer: None,
            parts: None,
            thought: None,
            tail: Vec::new(),
            called: false,
            used: 0,
            ended: false,
            last_step: None,
            trace: false,
        }
    }

    /// Expects the trace of every step after the tokens of that step.
    #[must_use]
    pub fn traced(self, trace: bool) -> Self {
        Self { trace, ..self }
    }

    /// Delivers log-probabilities with the tokens, if there is a `scorer`.
    #[must_use]
    pub fn scored(self, scorer: Option<Scorer>) -> Self {
        Self { scorer, ..self }
    }

    /// Ends the answer with the given tokens `tail`.
    #[must_use]
    pub fn before(self, tail: &[TokenId]) -> Self {
        Self { tail: tail.to_vec(), ..self }
    }

    /// Splits the text with `parts`, if answers have parts.
    #[must_use]
    pub fn split(self, parts: Option<PartStream>) -> Self {
        Self { parts, ..self }
    }

    /// Counts the tokens of the reasoning with `thought`, if answers have reasoning.
    #[must_use]
    pub fn thinking(self, thought: Option<ThoughtCount>) -> Self {
        Self { thought, ..self }
    }

    /// An empty delta of this choice.
    pub fn delta(&self) -> Delta {
        Delta {
            index: self.index,
            parts: self.parts.as_ref().map(|_| Vec::new()),
            ..Delta::default()
        }
    }

    /// Adds `event` to `delta`.
    ///
    /// # Errors
    /// The sequence failed.
    pub fn take(&mut self, event: Event, delta: &mut Delta) -> Result<(), Failure> {
        match event {
            Event::Started => delta.started = true,
            Event::Tokens { chunk, stats, logprobs } => {
                self.push(chunk.as_slice(), logprobs.unwrap_or_default(), delta);
                if self.ended && self.trace {
                    self.last_step = Some(stats);
                } else if self.ended {
                    delta.stats = Some(stats);
                }
            }
            Event::Step(step) => {
                delta.steps.push(*step);
                delta.stats = self.last_step.take();
            }
            // No text is read.
            Event::Labels(_) => {}
            Event::Finished(finished) => {
                let tail = std::mem::take(&mut self.tail);
                let certain = tail.iter().map(|token| TokenLogprob::certain(*token));
                self.push(&tail, certain.collect(), delta);
                if self.ended {
                    delta.stats = Some(finished.stats);
                    return Ok(());
                }
                self.finish(finished.reason, delta);
                delta.stop_token = finished.stop_token.filter(|_| delta.stop_string.is_none());
                delta.stats = Some(finished.stats);
            }
            Event::Refused { message } => return Err(Failure::Refused(message)),
            Event::Failed { message } => return Err(Failure::Failed(message)),
        }
        Ok(())
    }

    fn push(&mut self, tokens: &[TokenId], logprobs: Box<[TokenLogprob]>, delta: &mut Delta) {
        let piece = self.stream.push(tokens);
        let fresh = piece.tokens_used - self.used;
        self.used = piece.tokens_used;
        self.held.extend_from_slice(&tokens[..fresh]);
        if let Some(thought) = &mut self.thought {
            thought.push(&tokens[..fresh]);
        }
        if let Some(scorer) = &mut self.scorer {
            self.held_scored.extend(scorer.push(&tokens[..fresh], logprobs));
        }
        self.deliver(&piece.text, delta);
        delta.stop_string = delta.stop_string.or(piece.stop);
        if piece.stopped() {
            self.end(FinishReason::Stop, delta);
        }
    }

    fn finish(&mut self, reason: FinishReason, delta: &mut Delta) {
        let piece = self.stream.finish();
        // A stop string may complete in held-back text; ids after it are not part of the answer.
        let unused = self.used.saturating_sub(piece.tokens_used);
        self.held.truncate(self.held.len().saturating_sub(unused));
        self.held_scored.truncate(self.held.len());
        self.used = piece.tokens_used;
        self.deliver(&piece.text, delta);
        delta.stop_string = delta.stop_string.or(piece.stop);
        self.end(if piece.stopped() { FinishReason::Stop } else { reason }, delta);
    }

    /// Delivers text; ids wait for the next text or part.
    fn deliver(&mut self, text: &str, delta: &mut Delta) {
        if text.is_empty() {
            return;
        }
        delta.text.push_str(&std::mem::take(&mut self.echo));
        delta.text.push_str(text);
        if self.split_text(text, false, delta) {
            self.release(delta);
        }
    }

    /// Adds the parts that `text` completes to `delta`; whether there is anything to deliver.
    fn split_text(&mut self, text: &str, is_last: bool, delta: &mut Delta) -> bool {
        let Some(stream) = &mut self.parts else {
            return true;
        };
        let parts = stream.push(text, is_last);
        self.called |= parts.iter().any(|part| matches!(part, Part::Call { .. }));
        let has_parts = !parts.is_empty();
        delta.parts.get_or_insert_default().extend(parts);
        has_parts
    }

    fn release(&mut self, delta: &mut Delta) {
        delta.token_ids.append(&mut self.held);
        delta.scored.append(&mut self.held_scored);
    }

    fn end(&mut self, reason: FinishReason, delta: &mut Delta) {
        delta.text.push_str(&std::mem::take(&mut self.echo));
        // A call that is not complete here never will be: the text that is held back stays text.
        delta.cut_call = self.parts.as_ref().is_some_and(PartStream::is_inside_call);
        self.split_text("", true, delta);
        self.release(delta);
        delta.finish = Some(reason);
        delta.called = self.called;
        let thought = self.thought.as_ref().map_or(0, ThoughtCount::count);
        delta.reasoning_tokens = thought.min(self.used);
        self.ended = true;
    }
}
