//! Scripted walks: every text file of `tests/scripts` is one sequence, step by step, with the
//! proposals of the model and the effects of the decoder. `fork.txt` explains the format.

use std::sync::Arc;

use asynclane_decode::{
    Birth, CommitKind, Decoder, DecoderConfig, DoneReason, Effect, Input, Offset, Proposal, Role,
    Span, TokenClasses, TokenId,
};

use crate::common::{asynclane, at, candidate, class, commit, wanted, with_schedule};

#[test]
fn fork() {
    play(include_str!("../scripts/fork.txt"));
}

#[test]
fn stop_token() {
    play(include_str!("../scripts/stop_token.txt"));
}

#[test]
fn code() {
    play(include_str!("../scripts/code.txt"));
}

/// One step of a script (or the birth): proposals, expected effects, expected picture.
#[derive(Default)]
struct Step<'a> {
    line: usize,
    says: Vec<(u32, TokenId, f64)>,
    then: Vec<&'a str>,
    canvas: &'a str,
}

struct Script<'a> {
    settings: Vec<&'a str>,
    steps: Vec<Step<'a>>,
    /// Token texts: mask, stop token, filler, then as they occur.
    texts: Vec<String>,
}

fn play(text: &str) {
    let script = Script::parse(text);
    let (config, budget) = script.config();
    let classes = script.texts.iter().map(|text| class(text)).collect();
    let input = Input {
        classes: Arc::new(TokenClasses::new(classes)),
        ..Input::new(budget, &[1])
    };
    let mut effects = Vec::new();
    let mut decoder = Decoder::new(&config, input, &mut effects);
    for (number, step) in script.steps.iter().enumerate() {
        if number > 0 {
            assert!(
                !decoder.is_done(),
                "line {}: the sequence is done already",
                step.line
            );
            effects.clear();
            decoder.apply(&script.proposals(step, &decoder), &mut effects);
        }
        let words: Vec<String> = effects
            .iter()
            .map(|effect| script.words(effect, &decoder))
            .collect();
        assert_eq!(words, step.then, "line {}, the effects", step.line);
        assert_eq!(
            script.picture(&decoder),
            step.canvas,
            "line {}, the canvas",
            step.line
        );
    }
    assert!(
        decoder.is_done(),
        "the script ends before the sequence does"
    );
}

impl<'a> Script<'a> {
    fn parse(text: &'a str) -> Self {
        let texts = ["_", "<end>", "?"].map(str::to_owned).to_vec();
        let mut script = Self {
            settings: Vec::new(),
            steps: vec![Step::default()],
            texts,
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line == "step" {
                script.steps.push(Step {
                    line: number + 1,
                    ..Step::default()
                });
                continue;
            }
            let proposal = script.proposal(line);
            let step = script.steps.last_mut().expect("the birth is the first");
            if let Some(words) = line.strip_prefix("-> ") {
                step.then.push(words);
            } else if let Some(picture) = line.strip_prefix("= ") {
                step.canvas = picture;
            } else if let Some(proposal) = proposal {
                step.says.push(proposal);
            } else {
                script.settings.push(line);
            }
        }
        script
    }

    /// `3 "." .95`, or nothing if the line does not begin with an offset.
    fn proposal(&mut self, line: &str) -> Option<(u32, TokenId, f64)> {
        let (offset, rest) = line.split_once(" \"")?;
        let offset = offset.parse().ok()?;
        let (text, probability) = rest.rsplit_once("\" ").expect("a text in quotes");
        let text = text.replace("\\n", "\n");
        let token = self
            .texts
            .iter()
            .position(|known| *known == text)
            .unwrap_or_else(|| {
                self.texts.push(text);
                self.texts.len() - 1
            });
        Some((
            offset,
            token as TokenId,
            probability.parse().expect("a probability"),
        ))
    }

    fn config(&self) -> (DecoderConfig, u32) {
        let find = |key: &str| {
            let mut words = self
                .settings
                .iter()
                .map(|line| line.split_once(' ').unwrap_or((line, "")));
            words.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let number = |key| find(key).map(|value| value.parse::<f64>().expect("a number"));
        let count = |key| number(key).unwrap_or_else(|| panic!("{key} is missing")) as u32;
        let value = |key| number(key).unwrap_or_else(|| panic!("{key} is missing"));
        let fork = match find("fork") {
            Some("sentence") => "sentence",
            Some("newline") => "newline",
            other => panic!("fork {other:?}"),
        };
        let schedule = asynclane()
            .with("block_length", count("block"))
            .with("lookahead", count("lookahead"))
            .with("draft_threshold", number("draft").unwrap_or(2.0))
            .with("fork", fork)
            .with("min_fill", value("min_fill"))
            .with("min_clock", count("min_clock"))
            .with("coupled", find("coupled").is_some());
        let config = DecoderConfig {
            commit: commit("threshold").with("threshold", value("threshold")),
            ..with_schedule(schedule)
        };
        (config, count("budget"))
    }

    fn proposals(&self, step: &Step<'_>, decoder: &Decoder) -> Vec<Proposal> {
        let offsets: Vec<u32> = wanted(decoder)
            .into_iter()
            .map(|(offset, _)| offset.get())
            .collect();
        for (offset, ..) in &step.says {
            assert!(
                offsets.contains(offset),
                "line {}: nobody asks for {offset}",
                step.line
            );
        }
        let says = |offset| {
            let said = step.says.iter().find(|(at, ..)| *at == offset);
            let (_, token, probability) = *said.unwrap_or(&(offset, 2, 0.1));
            Proposal {
                offset: at(offset),
                candidate: candidate(token, probability),
            }
        };
        offsets.into_iter().map(says).collect()
    }

    fn text(&self, token: TokenId) -> String {
        self.texts[token as usize].replace('\n', "\\n")
    }

    fn words(&self, effect: &Effect, decoder: &Decoder) -> String {
        match *effect {
            Effect::Commit(of) => {
                let verb = match of.kind {
                    CommitKind::Draft => "drafts",
                    _ => "commits",
                };
                format!("{verb} {} \"{}\"", of.offset, self.text(of.token))
            }
            Effect::Place(of) => format!("places {} \"{}\"", of.offset, self.text(of.token)),
            Effect::Revoke { offset } => format!("revokes {offset}"),
            Effect::Shorten { len } => format!("cuts the canvas to {len}"),
            Effect::Fork { lane, split } => {
                format!(
                    "lane {} forks at {}",
                    lane.0,
                    decoder.tree().get(lane).start.plus(split)
                )
            }
            Effect::Start {
                lane,
                role,
                start,
                len,
                birth,
                ..
            } => {
                let verb = if role == Role::Refine {
                    "refines"
                } else {
                    "generates"
                };
                let note = match birth {
                    Birth::Active => "",
                    Birth::Waiting => " (waits for its refine lane)",
                    Birth::Finished => " (nothing to do)",
                };
                format!("lane {} {verb} {start}..{}{note}", lane.0, start.plus(len))
            }
            Effect::Resize { lane, len } => format!("lane {} owns {len} offsets", lane.0),
            Effect::Wake { lane } => format!("lane {} wakes", lane.0),
            Effect::Finish { lane, valid } => {
                format!("lane {} finishes with {valid} offsets", lane.0)
            }
            Effect::Advance { from, to } => {
                let tokens = from
                    .to(to)
                    .iter()
                    .filter_map(|offset| decoder.canvas().get(offset));
                let text: String = tokens.map(|token| self.text(token)).collect();
                format!("emits \"{text}\"")
            }
            Effect::Done { reason } => match reason {
                DoneReason::StopToken => "done: stop token".to_owned(),
                DoneReason::Budget => "done: budget".to_owned(),
                DoneReason::LaneBudget => "done: lane budget".to_owned(),
                DoneReason::Complete => "done: the grammar is fulfilled".to_owned(),
                DoneReason::Failed => "done: the grammar failed".to_owned(),
            },
        }
    }

    /// The canvas up to the last lane or token, lanes in brackets.
    fn picture(&self, decoder: &Decoder) -> String {
        let canvas = decoder.canvas();
        let show = |range: Span<Offset>| -> String {
            range
                .iter()
                .map(|at| self.text(canvas.get(at).unwrap_or(0)))
                .collect()
        };
        let (mut parts, mut next) = (Vec::new(), Offset::ZERO);
        for lane in decoder.lanes() {
            if next < lane.range.start {
                parts.push(show(next.to(lane.range.start)));
            }
            let name = if lane.role == Role::Refine {
                "refine"
            } else {
                "generate"
            };
            parts.push(format!("{name}[{}]", show(lane.range)));
            next = lane.range.end;
            if !lane.lookahead.is_empty() {
                parts.push(format!("ahead[{}]", show(lane.lookahead)));
                next = lane.lookahead.end;
            }
        }
        let behind = next.to(canvas.end()).iter();
        let end = behind.rev().find(|at| !canvas.is_mask(*at));
        if let Some(last) = end {
            parts.push(show(next.to(last.next())));
        }
        parts.join(" ").trim_end().to_owned()
    }
}
