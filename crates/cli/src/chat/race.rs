//! `/race`: one message, two decoders, one after the other.

use anyhow::Result;
use engine::decoding::DecodingSpec;

use super::Chat;
use crate::answer::{End, WholeAnswer};
use crate::exit;

/// A complete answer in a race.
struct Run {
    /// The decoder.
    name: String,
    answer: WholeAnswer,
}

impl Chat<'_> {
    /// Answers the last message again with two decoders and tells which took less. One name races
    /// against the plain decoder of the weights, none lets the present decoder race against it. The
    /// conversation stays as it is.
    pub(super) fn race(&mut self, named: &[&str]) -> Result<()> {
        let plain = self.one_by_one();
        let runners = match named {
            [] => [self.decoder.clone(), self.decoder(plain)?],
            [one] => [self.decoder(one)?, self.decoder(plain)?],
            [one, other] => [self.decoder(one)?, self.decoder(other)?],
            _ => return Err(exit::failure(exit::USAGE, "a race has two decoders")),
        };
        let asked = self.turns.iter().rposition(|turn| turn.role == "user");
        let Some(asked) = asked else {
            return Err(exit::failure(exit::USAGE, "ask something first; a race repeats it"));
        };
        let answers = self.turns.split_off(asked + 1);
        let ran = self.run(&runners);
        self.turns.extend(answers);
        if let [first, second] = &ran?[..] {
            tell!("{}", verdict(first, second));
        }
        Ok(())
    }

    /// The preset that commits one token per forward pass, if the weights have one.
    fn one_by_one(&self) -> &'static str {
        let weights = self.session.weights;
        let names = ["vanilla", "autoregressive"];
        let found = weights.presets().find(|preset| names.contains(&preset.name));
        found.map_or(weights.plain_preset(), |preset| preset.name)
    }

    /// The answers of the decoders that the user let finish.
    fn run(&mut self, runners: &[DecodingSpec]) -> Result<Vec<Run>> {
        let mut ran = Vec::new();
        for decoder in runners {
            let name = self.session.decoders.spec(decoder).to_string();
            tell!("\n{name}");
            let answer = self.answered(decoder)?;
            tell!("{} in {:.2} s", answer.cost.forwards(), answer.cost.time.as_secs_f64());
            answer.tell_end(&self.sampling);
            if answer.end == End::Interrupted {
                break;
            }
            ran.push(Run { name, answer });
        }
        Ok(ran)
    }
}

/// One line about a race: time, forward passes, text.
fn verdict(first: &Run, second: &Run) -> String {
    let faster = second.answer.cost.time < first.answer.cost.time;
    let (winner, other) = if faster { (second, first) } else { (first, second) };
    let seconds = |run: &Run| run.answer.cost.time.as_secs_f64().max(1e-9);
    let text = match first.answer.text == second.answer.text {
        true => "the same text",
        false => "another text",
    };
    format!(
        "\n{} was {:.1} times faster than {} ({} beside {}): {text}",
        winner.name,
        seconds(other) / seconds(winner),
        other.name,
        winner.answer.cost.forwards(),
        other.answer.cost.stats.forwards(),
    )
}
