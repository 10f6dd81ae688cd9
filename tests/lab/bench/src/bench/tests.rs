//! Whole comparisons on a few problems.

use clap::Parser;

use super::*;
use crate::args::{Cli, Command};

/// The rows of a comparison with these arguments.
fn rows(name: &str, arguments: &[&str]) -> Vec<report::Entry> {
    let file = format!("asynclane-bench-{}-{name}.json", std::process::id());
    let path = std::env::temp_dir().join(file);
    let common = ["asynclane-lab", "bench", "--rounds", "2", "--max-tokens", "48"];
    let json = ["--json", path.to_str().unwrap()];
    let cli = Cli::parse_from([&common[..], arguments, &json].concat());
    let Command::Bench(args) = cli.command else {
        panic!("not bench");
    };
    run(&args).unwrap();
    let report = Report::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    report.tasks.into_iter().next().unwrap().decoders
}

#[test]
fn a_server_gives_the_answers_of_the_engine_at_the_same_cost() {
    let flags = ["--decoders", "balanced", "--problems", "4"];
    let more = ["--target", "engine,http", "--concurrency", "3"];
    let rows = rows("http", &[&flags[..], &more].concat());
    let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
    assert_eq!(names, ["balanced engine", "balanced http"]);
    let cost = |row: &report::Entry| (row.nfe_per_token, row.positions_per_token, row.tokens);
    assert_eq!(cost(&rows[0]), cost(&rows[1]));
    assert_eq!((rows[1].agreement, rows[1].end), (Some(100.0), rows[0].end));
    assert!(rows[0].overhead.is_some() && rows[1].overhead.is_none());
    assert!(rows[1].latency.as_ref().is_some_and(|l| l.ttft_ms[0] > 0.0));
}

#[test]
fn models_stand_side_by_side() {
    let decoders = "demo-wedlm:autoregressive balanced demo-wedlm:wedlm";
    let both = rows("models", &["--decoders", decoders, "--problems", "2"]);
    let names: Vec<&str> = both.iter().map(|row| &*row.name).collect();
    assert_eq!(names, decoders.split(' ').collect::<Vec<_>>());
    let flags = ["--model", "demo-wedlm", "--problems", "2", "--decoders"];
    let alone = rows("model", &[&flags[..], &["autoregressive wedlm"]].concat());
    let cost = |row: &report::Entry| (row.nfe_per_token, row.positions_per_token, row.tokens);
    assert_eq!(cost(&both[0]), cost(&alone[0]));
    assert_eq!(cost(&both[2]), cost(&alone[1]));
}

/// Blocks are as long as the model's, and the tokens of a check are counted.
#[test]
fn what_is_not_named_is_as_the_weights_want_it() {
    let decoders = "s2d2 s2d2,block_length=8 s2d2,block_length=16 block_causal";
    let flags = ["--model", "demo-sdar", "--problems", "2", "--decoders"];
    let rows = rows("blocks", &[&flags[..], &[decoders]].concat());
    // Positions also depend on the pages of prompts that earlier rows have left.
    let cost = |row: &report::Entry| (row.nfe_per_token, row.tokens);
    assert_eq!(cost(&rows[0]), cost(&rows[1]));
    assert_ne!(cost(&rows[0]), cost(&rows[2]));
    let accepted = rows[0].accepted_length.expect("guesses are checked");
    assert!((1.0..=8.0).contains(&accepted), "{accepted}");
    assert_eq!(rows[3].accepted_length, None);
}

#[test]
fn the_scheduler_alone_and_a_model_without_weights_run_the_same_problems() {
    let flags = ["--decoders", "balanced", "--problems", "2", "--target", "sim"];
    let alone = rows("sim", &flags);
    // The simulated text of the scheduler's executor has no end.
    assert_eq!(alone[0].tokens, 2 * 48);
    assert!(alone[0].scheduled_rows_per_second.unwrap() > 0.0);
    let flags = ["--decoders", "balanced", "--problems", "2", "--concurrency", "1,2"];
    let more = ["--geometry", "demo", "--candidates", "sim"];
    let without = rows("geometry", &[&flags[..], &more].concat());
    assert_eq!(without.len(), 2);
    assert!(without[0].tokens > 0 && without[0].nfe_per_token < 1.0);
    assert_eq!(without[1].agreement, Some(100.0));
}

#[test]
fn an_open_loop_answers_everything() {
    let flags = ["--decoders", "fast", "--problems", "4", "--rate", "50,500"];
    let rows = rows("open", &flags);
    assert_eq!(rows[1].name, "fast rate=500");
    assert_eq!(rows[0].tokens, rows[1].tokens);
}

#[test]
fn what_makes_no_comparison_is_refused() {
    let refused = |flags: &[&str]| {
        let cli = Cli::parse_from([&["asynclane-lab", "bench"], flags].concat());
        let Command::Bench(args) = cli.command else {
            panic!("not bench");
        };
        run(&args).unwrap_err().to_string()
    };
    for (flags, expected) in [
        (&["--problems", "0"][..], "--problems"),
        (&["--concurrency", "0"], "--concurrency"),
        (&["--rate", "-1"], "--rate"),
        (&["--rate", "0"], "--rate"),
        (&["--url", "http://127.0.0.1:1"], "--url"),
        (&["--target", "http", "--url", "127.0.0.1"], "--url"),
        (&["--geometry", "tiny"], "--geometry"),
        (&["--dtype", "f32,f64"], "dtype"),
        (&["--kv-dtype", "f32,int4"], "engine.kv_dtype"),
    ] {
        let message = refused(flags);
        assert!(message.contains(expected), "{flags:?}: {message}");
    }
}

#[test]
fn tasks_are_named_one_by_one_or_all_at_once() {
    let all = Task::ALL.to_vec();
    assert_eq!(tasks("all").unwrap(), all);
    assert_eq!(tasks("sums,snippets,lists").unwrap(), all);
    assert_eq!(tasks("lists, sums").unwrap(), [Task::Lists, Task::Sums]);
    assert_eq!(tasks("calls").unwrap(), [Task::Calls]);
    assert_eq!(tasks("lists,all").unwrap()[..2], [Task::Lists, Task::Sums]);
    assert!(tasks("poems").is_err() && tasks("").is_err());
}
