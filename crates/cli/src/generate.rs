//! `asynclane generate`: answers one prompt, prints tokens as they are committed, and the lane tree.

use std::sync::atomic::AtomicBool;

use anyhow::Result;

use crate::answer::Answer;
use crate::args::GenerateArgs;
use crate::config::Config;
use crate::load;
use crate::session::{Prompt, Session, refuse_blanks};

/// Writes the answer to standard output and everything else to standard error.
///
/// # Errors
/// A model that does not load, no prompt, a prompt that does not fit, a failed step.
pub fn run(args: &GenerateArgs) -> Result<()> {
    let config = Config::resolve(&args.model, None)?;
    let prompt = match &args.prompt {
        Some(prompt) => prompt.clone(),
        None => std::io::read_to_string(std::io::stdin())?,
    };
    if !args.raw {
        let advice = "write it behind the command (asynclane generate \"Hello\"), or pipe it (echo Hello | \
                      asynclane generate)";
        refuse_blanks(&prompt, advice)?;
    }
    let session = Session::start(&config)?;
    let tokens = match args.raw {
        true => session.tokenizer.encode(&prompt, true)?,
        false => load::chat_ids(prompt.trim(), &session.tokenizer)?,
    };
    let decoding = session.decoders.resolve(&session.decoders.blank())?;
    let budget = session.budget(&args.sampling, &decoding, tokens.len())?;
    let is_code = server::is_code_shaped(&prompt);
    let stream = session.submit(Prompt { tokens, budget, is_code }, decoding, &args.sampling)?;
    let answer = Answer::new(&session.tokenizer, budget, args.trace);
    let answered = answer.follow(stream, &AtomicBool::new(false))?;
    answered.tell_end(&args.sampling);
    if args.stats || args.trace {
        say!("{}", answered.cost);
    }
    Ok(())
}
