//! Golden outputs over HTTP, with the settings of `golden::settings`. The engine's test,
//! `tests/goldens.rs`, compares more problems; here a part of them shows that a request reaches the
//! engine with the same settings and that the answer tells the same cost.

use std::sync::OnceLock;

use asynclane_tests::client::Client;
use asynclane_tests::golden::{self, Goldens, Row, Run};
use asynclane_tests::reply::Reply;
use asynclane_tests::served::{MODEL, Served, in_parallel};
use serde_json::{Map, Value, json};

/// Decisions closer than this to their threshold may change under another summation order.
const SAFE_MARGIN: f64 = 1e-4;
/// Simultaneous requests.
const CONNECTIONS: usize = 16;
/// Blocks of the budget: the maximum of empty passes of the official cached samplers.
const BLOCKS: u64 = 4;
/// One problem in twelve is asked for, from the seventh on: some of every task.
const STRIDE: usize = 12;
/// Maximum answers of a run that end with neither a stop token nor the budget: their last lane ran out
/// of steps with masks left before the stop token that had cut the canvas.
const GIVEN_UP: usize = 1;

/// One server for all runs, which do not affect each other.
fn client() -> Client {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(Served::start).client()
}

/// The `diffusion` object of a run.
fn diffusion(name: &str, task: &str) -> Map<String, Value> {
    let settings = golden::settings(name, task).expect("a known run");
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let pairs = settings.split(',').map(|pair| pair.split_once('='));
    pairs
        .map(|pair| pair.expect("settings are key=value"))
        .map(|(key, text)| (key.trim().to_owned(), value(text)))
        .collect()
}

fn ask(row: &Row, name: &str, budget: u32, whole_canvas: bool) -> Reply {
    let mut diffusion = diffusion(name, &row.task);
    if whole_canvas {
        diffusion.insert("early_stop".to_owned(), json!(false));
    }
    let body = json!({"model": MODEL, "prompt": row.prompt_ids, "max_tokens": budget,
        "temperature": 0, "return_token_ids": true, "diffusion": diffusion});
    Reply::of_answer(&client().json("/v1/completions", &body))
}

/// The differences in tokens and finish reason, as text.
fn output(goldens: &Goldens, run: &Run, reply: &Reply) -> Vec<String> {
    let end = run.ids.iter().position(|id| goldens.stop_ids.contains(id));
    let tokens = &run.ids[..end.unwrap_or(run.ids.len())];
    let choice = &reply.choices[0];
    let mut found = Vec::new();
    if choice.token_ids != tokens {
        let same = choice.token_ids.iter().zip(tokens);
        let equal = same.take_while(|(ours, theirs)| ours == theirs).count();
        found.push(format!("tokens differ from offset {equal}"));
    }
    let full = tokens.len() == goldens.budget as usize;
    let reason = if full { "length" } else { "stop" };
    if choice.finish_reason != reason && !gave_up(goldens, run, reply) {
        found.push(format!("{}, expected {reason}", choice.finish_reason));
    }
    found
}

/// True if an AsyncLane answer ended short of the budget without a stop token after it.
fn gave_up(goldens: &Goldens, run: &Run, reply: &Reply) -> bool {
    let choice = &reply.choices[0];
    !run.is_official()
        && choice.finish_reason == "length"
        && choice.token_ids.len() < goldens.budget as usize
}

/// The differences in cost, as text.
fn cost(name: &str, run: &Run, reply: &Reply, whole_canvas: bool) -> Vec<String> {
    let forwards = reply.count("forwards");
    let expected = u64::from(run.nfe);
    if run.is_official() {
        let cached = name.starts_with("prefix") || name.starts_with("dual");
        let fits = match (whole_canvas, cached) {
            // The server stops at the end of the answer, the official code at the end of the canvas.
            (false, _) => forwards <= expected,
            // The official code runs an empty pass for every block that its first pass fills.
            (true, true) => (forwards..=forwards + BLOCKS).contains(&expected),
            (true, false) => forwards == expected,
        };
        let found = format!("{forwards} forwards, official {expected}");
        return if fits { Vec::new() } else { vec![found] };
    }
    let counts = [
        ("forwards", Some(expected)),
        ("forks", run.forks.map(u64::from)),
        ("drafts", run.drafts.map(u64::from)),
        ("refresh_forwards", run.refreshes.map(u64::from)),
        ("positions", run.fwd_tokens),
    ];
    let differs = |(field, expected): (&str, Option<u64>)| {
        let expected = expected.expect("AsyncLane goldens tell all of their cost");
        let ours = reply.count(field);
        (ours != expected).then(|| format!("{field} {ours}, expected {expected}"))
    };
    counts.into_iter().filter_map(differs).collect()
}

/// Compares every `STRIDE`-th problem of one run; those with a tiny margin may differ and are listed.
/// Returns how many are different.
fn compare(name: &str, whole_canvas: bool) -> usize {
    let mut goldens = golden::load();
    let rows = goldens.rows.into_iter().skip(STRIDE / 2);
    goldens.rows = rows.step_by(STRIDE).collect();
    let budget = goldens.budget;
    let replies =
        in_parallel(CONNECTIONS, &goldens.rows, |row| ask(row, name, budget, whole_canvas));
    let (mut different, mut given_up, mut wrong) = (0, 0, Vec::new());
    for (row, reply) in goldens.rows.iter().zip(&replies) {
        let run = &row.runs[name];
        given_up += usize::from(gave_up(&goldens, run, reply));
        let mut found = output(&goldens, run, reply);
        found.extend(cost(name, run, reply, whole_canvas));
        if found.is_empty() {
            continue;
        }
        different += 1;
        let found = format!("{name} {} ({}): {}", row.id, row.task, found.join("; "));
        match run.margin < SAFE_MARGIN {
            true => println!("{found}; margin {:.1e}", run.margin),
            false => wrong.push(found),
        }
    }
    assert!(given_up <= GIVEN_UP, "{name}: {given_up} given up");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    different
}

/// Both the answer alone and the whole canvas as published.
fn official(name: &str) {
    compare(name, false);
    compare(name, true);
}

#[test]
fn vanilla() {
    // All its margins are tiny: it orders near-certain tokens.
    assert!(compare("vanilla_steps64", true) <= 1);
}

/// A test for each run, by some function.
macro_rules! runs {
    ($($by:ident: $test:ident = $run:literal;)*) => {
        $(
            #[test]
            fn $test() {
                $by($run);
            }
        )*
    };
}

fn answer(name: &str) {
    compare(name, false);
}

runs! {
    official: threshold = "threshold0.9";
    official: prefix = "prefix0.9";
    official: dual = "dual0.9";
    answer: snapshot = "asynclane_snapshot";
    answer: snapshot_strict = "asynclane_snapshot_strict";
    answer: snapshot_every_12 = "asynclane_snapshot_every12";
    answer: fresh = "asynclane_fresh";
    answer: fresh_without_forks = "asynclane_fresh_nofork";
    answer: fresh_coupled = "asynclane_fresh_coupled";
    answer: fused = "asynclane_fused";
    answer: fused_open = "asynclane_fused_open";
}
