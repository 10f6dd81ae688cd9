//! `asynclane inspect determinism`: the same requests alone and among random ones, against any server with
//! OpenAI's API.

mod client;
mod compare;
mod local;
mod neighbours;

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::args::DeterminismArgs;
use crate::config::Config;
use crate::exit;
use crate::names::{shown, without_password};
use client::{Answer, Client, Question};
use compare::{Difference, Tally};
use local::LocalServer;
use neighbours::Neighbours;

/// Checks the server of `--address`, or one of the configured model in this process.
///
/// # Errors
/// No server, one that gives no answers in time, one whose answers differ.
pub fn run(args: &DeterminismArgs, config: impl FnOnce() -> Result<Config>) -> Result<()> {
    let (server, address) = match &args.address {
        Some(address) => (None, address.clone()),
        None => {
            let server = LocalServer::start(&config()?)?;
            let address = server.address.clone();
            (Some(server), address)
        }
    };
    let until = Instant::now() + Duration::from_secs(args.time);
    let place = match &server {
        Some(_) => format!("asynclane {} in this process", env!("CARGO_PKG_VERSION")),
        None => shown(&without_password(&address)),
    };
    let checked = check(args, &address, &place, until);
    drop(server);
    let verdict = checked?;
    tell!("{}", verdict.text.trim_end());
    match verdict.differing {
        0 => Ok(()),
        differing => {
            let message = format!(
                "{place}: {differing} answers differ from those to the same requests alone"
            );
            Err(exit::failure(exit::DIFFERENT, message))
        }
    }
}

/// The result of a check.
struct Verdict {
    text: String,
    /// Number of answers that differ.
    differing: usize,
}

fn check(args: &DeterminismArgs, address: &str, place: &str, until: Instant) -> Result<Verdict> {
    let client = Client::connect(args, address, until)?;
    let questions: Vec<Question> = (0..2 * args.requests)
        .map(|number| Question::compared(number / 2, number % 2 == 1, args.max_tokens))
        .collect();
    let ask = |question| client.ask(question);
    let alone: Vec<Answer> = questions.iter().map(ask).collect::<Result<_>>()?;
    let again: Vec<Answer> = questions.iter().map(ask).collect::<Result<_>>()?;
    let neighbours = Neighbours::start(&client, args);
    let among = neighbours.compared(&questions);
    let answered = neighbours.end()?;
    let (again, among) = (Tally::of(&alone, &again), Tally::of(&alone, &among?));
    let count = questions.len();
    let tokens: usize = alone.iter().map(|answer| answer.tokens.len()).sum();
    let half = count / 2;
    let mut text = format!(
        "determinism of {place}\n\
         server       {}\n\
         model        {}\n\
         compared     {} of {}\n\
         requests     {half} at temperature 0, {half} at temperature 1 with a seed, up to {} tokens, {tokens} in all\n\
         alone again  {} of {count} equal\n\
         neighbours   {} random requests at a time, {} answered: {} of {count} equal\n\
         log-probs    {}\n",
        client.server(alone.first()),
        shown(client.model()),
        client.compared(),
        client.endpoint(),
        args.max_tokens,
        count - again.differing,
        args.neighbours,
        answered,
        count - among.differing,
        largest(&client, again.largest.max(among.largest)),
    );
    for (when, tally) in [("alone again", &again), ("among neighbours", &among)] {
        if let Some(Difference { request, token, left, right }) = &tally.first {
            let (left, right) = (shown(left), shown(right));
            text.push_str(&format!(
                "first        {when}, request {request}, token {token}: {left}, then {right}\n"
            ));
        }
    }
    let differing = again.differing + among.differing;
    text.push_str(match differing {
        0 => "verdict      deterministic: neighbours change no bit of an answer",
        _ if again.differing == 0 => "verdict      NOT deterministic: neighbours change answers",
        _ => "verdict      NOT deterministic: the same request alone gives other answers",
    });
    Ok(Verdict { text, differing })
}

/// The largest difference of a log-probability, in words.
fn largest(client: &Client, difference: f64) -> String {
    match (client.has_logprobs(), difference) {
        (false, _) => "the server gives none".to_owned(),
        (true, 0.0) => "equal, bit for bit, up to the first other token".to_owned(),
        (true, difference) => format!("largest difference {difference:.3e}"),
    }
}
