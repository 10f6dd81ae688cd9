//! One sequence driven by hand, its batches as lines of text.

use std::fmt::Write;
use std::time::Duration;

use asynclane_engine::{Engine, EngineConfig, Event, Request, StepPlan, StepReport};
use decode::{Candidate, TokenId};
use step::{Attention, Batch, BatchOutput, ExecutorSpec, LogitShift, Row, Score, TopToken};

use super::config;

const MASK: TokenId = 0;

/// An engine over 64 pages of 4 slots with one request. The test plays the model.
#[derive(Debug)]
pub struct Scripted {
    pub engine: Engine,
    pub events: Vec<Event>,
    planned: Option<StepPlan>,
    prompt: u32,
    logit_shift: LogitShift,
}

impl Scripted {
    /// Full attention; every row predicts its own position.
    pub fn new(request: Request) -> Self {
        Self::of(request, (Attention::Full, LogitShift::None))
    }

    /// Weights with another attention or logit_shift.
    pub fn of(request: Request, weights: (Attention, LogitShift)) -> Self {
        Self::with(&config(), request, weights)
    }

    /// [`Self::of`] under another configuration.
    pub fn with(config: &EngineConfig, request: Request, weights: (Attention, LogitShift)) -> Self {
        let (attention, logit_shift) = weights;
        let spec = ExecutorSpec {
            page_size: 4,
            pages: 64,
            vocab_size: 64,
            max_positions: 64,
            mask: Some(MASK),
            attention,
            logit_shift,
        };
        let mut engine = Engine::new(config, spec);
        let prompt = request.prompt.len() as u32;
        engine.submit(request).expect("there is room for one");
        Self { engine, events: Vec::new(), planned: None, prompt, logit_shift }
    }

    /// The batch of the next step.
    pub fn plan(&mut self) -> &Batch {
        let plan = || self.engine.plan().expect("there is something to run");
        self.planned.get_or_insert_with(plan).batch()
    }

    /// One step in which the model predicts `said` (offset, token, probability), and token 63 with
    /// 0.1 at every other scored offset. Returns the batch.
    pub fn step(&mut self, said: &[(u32, TokenId, f64)]) -> Vec<String> {
        self.engine.clear_report();
        self.plan();
        let step = self.planned.take().expect("it was planned");
        let batch = step.batch();
        let lines = picture(batch);
        let scored = batch.rows.iter().filter(|row| row.score.is_wanted());
        let ahead = u32::from(self.logit_shift == LogitShift::One);
        let offset = |row: &Row| row.position.get() + ahead - self.prompt;
        let offsets: Vec<u32> = scored.map(offset).collect();
        for (offset, ..) in said {
            assert!(offsets.contains(offset), "{offset} is not scored, only {offsets:?}");
        }
        let says = |offset: &u32| {
            let said = said.iter().find(|(place, ..)| place == offset);
            let (_, token, probability) = *said.unwrap_or(&(0, 63, 0.1));
            candidate(token, probability)
        };
        let candidates: Vec<Candidate> = offsets.iter().map(says).collect();
        let scored = batch.rows.iter().filter(|row| row.score.is_wanted());
        let tops = scored.zip(&candidates).flat_map(|(row, said)| {
            let all = [(said.token, said.probability), (62, 0.001)];
            let top = |(token, probability): (TokenId, f64)| TopToken {
                token,
                logprob: probability.ln() as f32,
            };
            assert!(row.score.tops() <= all.len(), "no more tops than these");
            all.into_iter().take(row.score.tops()).map(top)
        });
        let output = BatchOutput { tops: tops.collect(), candidates };
        self.engine.apply(step, &output, Duration::ZERO);
        self.engine.validate().expect("valid after a step");
        while let Some((_, event)) = self.engine.poll_event() {
            self.events.push(event);
        }
        lines
    }

    /// One step in which the model predicts `tokens` at the scored rows, in their order, with a
    /// probability of 0.5. Returns the batch.
    pub fn said(&mut self, tokens: &[TokenId]) -> Vec<String> {
        self.engine.clear_report();
        self.plan();
        let step = self.planned.take().expect("it was planned");
        let lines = picture(step.batch());
        assert_eq!(tokens.len(), step.batch().scored(), "{lines:?}");
        let candidates = tokens.iter().map(|token| candidate(*token, 0.5));
        let output = BatchOutput { candidates: candidates.collect(), tops: Vec::new() };
        self.engine.apply(step, &output, Duration::ZERO);
        self.engine.validate().expect("valid after a step");
        lines
    }

    /// The report of the last step.
    pub fn report(&mut self) -> &StepReport {
        self.engine.report()
    }
}

/// One line per copy and per segment. A segment is its pages and its rows: positions (and the first
/// slot, if it differs), input tokens, how many slots they see, and single slots after these. A scored mask is `?` (`?-` if
/// stop tokens are banned), a mask that is not scored is `_`, a scored token has an exclamation
/// mark.
pub fn picture(batch: &Batch) -> Vec<String> {
    let copies =
        batch.copies.iter().map(|copy| format!("copy {} -> {}", copy.source.0, copy.destination.0));
    let mut lines: Vec<String> = copies.collect();
    for segment in &batch.segments {
        let pages = batch.table_of(segment);
        let pages: Vec<String> = pages.iter().map(|page| page.0.to_string()).collect();
        let mut line = format!("pages {}:", pages.join(" "));
        let rows = batch.rows_of(segment);
        let runs = rows.chunk_by(|a, b| {
            let same = a.visible_end == b.visible_end || (sees_itself(a) && sees_itself(b));
            let same = same && a.beyond == 0 && b.beyond == 0;
            a.position.next() == b.position && a.slot.next() == b.slot && same
        });
        for run in runs {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            write!(line, " {}..{}", first.position, last.position.next()).expect("a string");
            if first.slot.get() != first.position.get() {
                write!(line, " at {}", first.slot).expect("a string");
            }
            line.push_str(" =");
            for row in run {
                write!(line, " {}", cell(row, batch)).expect("a string");
            }
            match run {
                [one, more @ ..] if sees_itself(one) && more.iter().all(sees_itself) => {
                    line.push_str(" see back;");
                }
                _ => {
                    write!(line, " see {}{};", first.visible_end, beyond(first)).expect("a string")
                }
            }
        }
        lines.push(line.trim_end_matches(';').to_owned());
    }
    lines
}

/// True if the last slot that the row sees is its own.
fn sees_itself(row: &Row) -> bool {
    row.visible_end == row.slot.next()
}

/// The single slots that the row sees.
fn beyond(row: &Row) -> String {
    let slots = row.visible_end.to(row.reach()).iter();
    let slots: Vec<String> =
        slots.filter(|slot| row.sees(*slot)).map(|slot| format!(" {slot}")).collect();
    match slots.is_empty() {
        true => String::new(),
        false => format!(" and{}", slots.concat()),
    }
}

fn cell(row: &Row, batch: &Batch) -> String {
    let biases = batch.biases_of(row);
    let banned = biases.iter().any(|bias| bias.amount == f32::NEG_INFINITY);
    match (row.token, row.score) {
        (MASK, Score::None) => "_".to_owned(),
        (token, Score::None) => token.to_string(),
        (MASK, _) if banned => "?-".to_owned(),
        (MASK, _) => "?".to_owned(),
        (token, _) => format!("{token}!"),
    }
}

/// A candidate without a likely rival.
pub fn candidate(token: TokenId, probability: f64) -> Candidate {
    Candidate {
        token,
        probability,
        runner_up: 62,
        runner_up_probability: 0.0,
        entropy: (1.0 - probability) as f32,
        gap: 0.0,
        present: 0.0,
    }
}
