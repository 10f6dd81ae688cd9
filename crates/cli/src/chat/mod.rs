//! `asynclane run`: a chat on the terminal.

mod command;
mod input;
mod race;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use decode::TokenId;
use engine::decoding::{Decoding, DecodingSpec, Preset, TUNED_PRESETS};
use text::Message;

use crate::answer::{Answer, Cost, WholeAnswer};
use crate::args::{ModelArgs, RunArgs, SamplingArgs};
use crate::config::Config;
use crate::exit;
use crate::load;
use crate::session::{Prompt, Session, refuse_blanks};

use command::{HELP, Line};
use input::Lines;

/// The oldest turns of a chat are dropped until its answer has room for this number of tokens, or for a
/// quarter of the context.
const LEAST_ROOM: u32 = 256;

/// Answers one prompt, or chats until the user ends it.
///
/// # Errors
/// A model that does not load, no prompt, a prompt that does not fit, a failed step.
pub fn run(args: &RunArgs) -> Result<()> {
    let (model, prompt) = named(args)?;
    let chats =
        prompt.is_none() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let prompt = match chats {
        true => String::new(),
        false => asked(prompt, args.name.as_deref())?,
    };
    let config = Config::resolve(&model, None)?;
    let session = Session::start(&config)?;
    let mut chat = Chat::new(&session, args.sampling);
    chat.system.clone_from(&args.system);
    if !chats {
        chat.answer(prompt.trim())?;
        return Ok(());
    }
    chat.interrupted = input::interrupts()?;
    chat.greet();
    let mut lines = Lines::new()?;
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        match chat.take(&line) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => tell!("{error:#}"),
        }
    }
    Ok(())
}

/// The model and the prompt that the arguments name.
fn named(args: &RunArgs) -> Result<(ModelArgs, Option<String>)> {
    let (name, prompt) = (args.name.as_deref(), args.prompt.clone());
    let by_option = args.model.weights.model.is_some() && !args.model.environment.contains("model");
    match (name, &prompt) {
        (Some(prompt), None) if by_option => Ok((args.model.clone(), Some(prompt.to_owned()))),
        (Some(name), Some(_)) if by_option => {
            let message = format!("--model and {name:?} both name the model");
            Err(exit::failure(exit::USAGE, message))
        }
        _ => Ok((args.model.named(name), prompt)),
    }
}

/// The prompt that was `given`, or that on standard input, where `name` is the model's.
fn asked(given: Option<String>, name: Option<&str>) -> Result<String> {
    let read = match (&given, name) {
        (None, Some(name)) => format!("{name:?} was read as the model's name; "),
        _ => String::new(),
    };
    let text = match given {
        Some(text) => text,
        None if std::io::stdin().is_terminal() => String::new(),
        None => std::io::read_to_string(std::io::stdin())?,
    };
    let advice = "write it behind the model (asynclane run demo \"Hello\"), or pipe it (echo Hello | \
                  asynclane run)";
    refuse_blanks(&text, &format!("{read}{advice}"))?;
    Ok(text)
}

/// A conversation with a model.
struct Chat<'a> {
    session: &'a Session,
    sampling: SamplingArgs,
    /// The decoder of the next answers; empty = the default one.
    decoder: DecodingSpec,
    system: Option<String>,
    turns: Vec<Message>,
    answers: Answers,
    /// Set by Ctrl-C.
    interrupted: Arc<AtomicBool>,
}

/// The costs of a chat.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    last: Option<Cost>,
    count: u32,
    tokens: u64,
    forwards: u64,
}

impl<'a> Chat<'a> {
    fn new(session: &'a Session, sampling: SamplingArgs) -> Self {
        Self {
            session,
            sampling,
            decoder: session.decoders.blank(),
            system: None,
            turns: Vec::new(),
            answers: Answers::default(),
            interrupted: Arc::default(),
        }
    }

    /// The lines before the first prompt.
    fn greet(&self) {
        let decoder = self.session.decoders.spec(&self.decoder).to_string();
        tell!("{}, decoder {decoder}. /help lists commands.", self.session.name);
        if self.session.is_demo {
            tell!(
                "This is a small test model. It answers a few kinds of questions in fixed wordings, each \
                 alone. Try:\n  {}",
                demo::EXAMPLES[0]
            );
        }
    }

    /// Takes a line of the user; false if it ends the chat.
    ///
    /// # Errors
    /// A command or message that cannot be taken; the chat goes on.
    fn take(&mut self, line: &str) -> Result<bool> {
        match Line::parse(line).map_err(|message| exit::failure(exit::USAGE, message))? {
            Line::Message(text) => {
                self.answer(text)?;
            }
            Line::Preset(None) => self.list_presets(),
            Line::Preset(Some(named)) => self.choose(named)?,
            Line::Race(decoders) => self.race(&decoders)?,
            Line::Stats => self.tell_stats(),
            Line::System(text) => {
                self.system = Some(text.to_owned()).filter(|text| !text.is_empty());
                self.turns.clear();
            }
            Line::Clear => self.turns.clear(),
            Line::Help => HELP.iter().for_each(|(usage, help)| tell!("  {usage:<18} {help}")),
            Line::Quit => return Ok(false),
        }
        Ok(true)
    }

    /// Answers a message; message and answer become part of the conversation.
    fn answer(&mut self, text: &str) -> Result<()> {
        if self.session.is_demo {
            // It was trained on single questions.
            self.turns.clear();
        }
        self.turns.push(Message::new("user", text));
        let answered = self.answered(&self.decoder.clone());
        let answered = answered.inspect_err(|_| {
            self.turns.pop();
        })?;
        self.answers.note(&answered.cost);
        answered.tell_end(&self.sampling);
        self.turns.push(Message::new("assistant", &answered.text));
        Ok(())
    }

    /// Writes the next answer with a decoder. Drops the oldest turns until the answer has room.
    fn answered(&mut self, decoder: &DecodingSpec) -> Result<WholeAnswer> {
        let least = LEAST_ROOM.min(self.session.context / 4);
        let mut tokens = self.tokens()?;
        let is_full = |tokens: &[TokenId]| {
            u32::try_from(tokens.len()).map_or(true, |count| count + least > self.session.context)
        };
        let mut dropped = 0;
        while is_full(&tokens) && self.turns.len() > 2 {
            self.turns.drain(..2);
            dropped += 1;
            tokens = self.tokens()?;
        }
        if dropped > 0 {
            tell!("(the context is full: the oldest {dropped} turns were dropped)");
        }
        let decoding = self.session.decoders.resolve(decoder)?;
        let budget = self.session.budget(&self.sampling, &decoding, tokens.len())?;
        let last = self.turns.last().map_or("", |turn| &turn.content);
        self.write(Prompt { tokens, budget, is_code: server::is_code_shaped(last) }, decoding)
    }

    fn tokens(&self) -> Result<Vec<TokenId>> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        let messages = system.chain(self.turns.iter().cloned()).collect();
        load::conversation_ids(messages, &self.session.tokenizer)
    }

    /// Writes an answer with a decoder.
    fn write(&self, prompt: Prompt, decoding: Decoding) -> Result<WholeAnswer> {
        self.interrupted.store(false, Ordering::Relaxed);
        let answer = Answer::new(&self.session.tokenizer, prompt.budget, false);
        let stream = self.session.submit(prompt, decoding, &self.sampling)?;
        let answered = answer.follow(stream, &self.interrupted);
        self.interrupted.store(false, Ordering::Relaxed);
        answered
    }

    /// The decoder that `named` says, if the weights support it.
    fn decoder(&self, named: &str) -> Result<DecodingSpec> {
        let decoders = &self.session.decoders;
        let decoder = decoders.registry().parse(named)?;
        decoders.resolve(&decoder)?;
        Ok(decoder)
    }

    fn choose(&mut self, named: &str) -> Result<()> {
        self.decoder = self.decoder(named)?;
        tell!("decoder {}", self.session.decoders.spec(&self.decoder));
        Ok(())
    }

    fn list_presets(&self) {
        let current = self.session.decoders.spec(&self.decoder).to_string();
        let current = current.split(',').next();
        let is_shown = |name: &str| TUNED_PRESETS.contains(&name) || current == Some(name);
        let (shown, others): (Vec<&Preset>, Vec<&Preset>) =
            self.session.weights.presets().partition(|preset| is_shown(preset.name));
        for preset in shown {
            let mark = if current == Some(preset.name) { "*" } else { " " };
            tell!("{mark} {:<12} {}", preset.name, preset.summary);
        }
        let others: Vec<_> = others.iter().map(|preset| preset.name).collect();
        tell!("others: {}", others.join(", "));
    }

    fn tell_stats(&self) {
        let Answers { last, count, tokens, forwards } = self.answers;
        match last {
            None => tell!("no answer yet"),
            Some(cost) => {
                let seconds = cost.time.as_secs_f64();
                let rate = f64::from(cost.stats.emitted_tokens) / seconds.max(1e-9);
                tell!("{cost}\n{seconds:.2} s, {rate:.0} tokens a second");
                tell!("{count} answers, {tokens} tokens, {forwards} forwards in all");
            }
        }
    }
}

impl Answers {
    fn note(&mut self, cost: &Cost) {
        self.last = Some(*cost);
        self.count += 1;
        self.tokens += u64::from(cost.stats.emitted_tokens);
        self.forwards += u64::from(cost.stats.forwards());
    }
}
