//! `/race`: one message, two decoders, one after the other.

use anyhow::Result;
use engine::decoding::DecodingSpec;

use super::Chat;
use crate::answer::Answered;
use crate::exit;

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

    /// The answers of the decoders that the user let finish, each with its name.
    fn run(&mut self, runners: &[DecodingSpec]) -> Result<Vec<(String, Answered)>> {
        let mut ran = Vec::new();
        for decoder in runners {
            let name = self.session.decoders.spec(decoder).to_string();
            tell!("\n{name}");
            let prompt = self.prompt()?;
            let answered = self.write(prompt, decoder)?;
            tell!("{} in {:.2} s", answered.cost.forwards(), answered.cost.time.as_secs_f64());
            if !answered.complete {
                tell!("(ended by Ctrl-C)");
                break;
            }
            ran.push((name, answered));
        }
        Ok(ran)
    }
}

/// One line about a race: passes, time, text.
fn verdict(first: &(String, Answered), second: &(String, Answered)) -> String {
    let forwards = |of: &Answered| f64::from(of.cost.stats.forwards().max(1));
    let faster = second.1.cost.time < first.1.cost.time;
    let (winner, other) = if faster { (second, first) } else { (first, second) };
    let seconds = |of: &Answered| of.cost.time.as_secs_f64().max(1e-9);
    let text = match first.1.text == second.1.text {
        true => "the same text",
        false => "another text",
    };
    format!(
        "\n{} took {:.1} times less time than {}, for {:.2} times its forward passes: {text}",
        winner.0,
        seconds(&other.1) / seconds(&winner.1),
        other.0,
        forwards(&winner.1) / forwards(&other.1),
    )
}
