//! Simulated replicas: what routing and autoscaling do, and that the kept results and the manifests
//! say the same.

use asynclane_lab::args::{Cli, Command, Study};
use asynclane_lab::replicas::{autoscaler, day, routing};
use clap::Parser;
use serde_json::Value;

/// The study of a command line.
fn study(arguments: &str) -> Study {
    let words = ["asynclane-lab", "replicas"].into_iter();
    let cli = Cli::try_parse_from(words.chain(arguments.split_whitespace()));
    match cli.expect("the command is valid").command {
        Command::Replicas(args) => args.study,
        other => panic!("{other:?}"),
    }
}

fn routed(arguments: &str) -> Vec<routing::Row> {
    match study(&format!("routing {arguments}")) {
        Study::Routing(args) => routing::run(&args).expect("it runs").routing,
        Study::Day(args) => panic!("{args:?}"),
    }
}

fn simulated(arguments: &str) -> Vec<day::Row> {
    match study(&format!("day {arguments}")) {
        Study::Day(args) => day::run(&args).expect("it runs").day,
        Study::Routing(args) => panic!("{args:?}"),
    }
}

fn file(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn kept(name: &str) -> Value {
    let text = file(&format!("tests/bench/simulated/{name}"));
    serde_json::from_str(&text).expect("a result is JSON")
}

#[test]
fn prefix_aware_routing_finds_more_in_the_caches_and_nothing_depends_on_a_clock() {
    let small = "--replicas 1,4 --users 12 --systems 16 --system-tokens 600 --turns 3 \
                 --answer-tokens 32 --kv-memory 1.2 --seconds 6 --warm-up 4";
    let rows = routed(small);
    assert_eq!(rows, routed(small), "the same arguments, the same rows");
    let names: Vec<&str> = rows.iter().map(|row| row.policy.as_str()).collect();
    assert_eq!(
        names,
        ["round-robin", "round-robin", "least-load", "prefix-aware"]
    );
    let [one, turns, load, aware] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert!(aware.hit_rate > turns.hit_rate + 0.05, "{rows:?}");
    assert!(aware.hit_rate > load.hit_rate + 0.05, "{rows:?}");
    assert!(
        aware.positions_per_token < turns.positions_per_token,
        "{rows:?}"
    );
    assert!(
        aware.tokens_per_second > 1.5 * one.tokens_per_second,
        "{rows:?}"
    );
    assert_ne!(rows, routed(&format!("{small} --seed 2")), "another seed");
}

#[test]
fn an_autoscaler_on_load_costs_less_than_many_replicas_and_waits_less_than_few() {
    let slow = "--bandwidth 30 --tflops 12 --kv-memory 5 --hours 1 --peak 7 \
                --settings fixed:2,fixed:8,load:11,kv:0.9";
    let rows = simulated(slow);
    let [few, many, load, kv] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!((few.changes, many.changes), ([0, 0], [0, 0]));
    assert!(few.replica_hours < load.replica_hours, "{rows:?}");
    assert!(load.replica_hours < many.replica_hours, "{rows:?}");
    assert!(load.ttft.0[1] < few.ttft.0[1], "{rows:?}");
    assert!(load.changes[0] > 0 && load.most > 2, "{rows:?}");
    // Full queues hold pages of 16 sequences at most: the share never reaches the target.
    assert!(kv.replica_hours < load.replica_hours, "{rows:?}");
}

#[test]
fn a_wrong_setting_is_refused_by_name() {
    for setting in ["load", "load:0", "fixed:65", "cpu:70", "kv:NaN"] {
        let Study::Day(args) = study(&format!("day --hours 1 --settings {setting}")) else {
            panic!("a day");
        };
        let error = day::run(&args).expect_err(setting).to_string();
        assert!(
            error.contains("--settings") && error.contains(setting),
            "{error}"
        );
    }
}

/// A row of the kept result, simulated again.
#[test]
fn the_kept_result_of_routing_repeats() {
    let kept = kept("routing.json");
    let again = routed("--replicas 1");
    let row = &kept["routing"][0];
    assert_eq!(row["policy"], "round-robin");
    for (name, found) in [
        ("hit_rate", again[0].hit_rate),
        ("tokens_per_second", again[0].tokens_per_second),
        ("positions_per_token", again[0].positions_per_token),
    ] {
        let expected = row[name].as_f64().expect(name);
        let near = (found - expected).abs() <= 0.02 * expected;
        assert!(near, "{name}: {found}, the result says {expected}");
    }
}

/// The kept day was simulated with what the manifest sets.
#[test]
fn the_simulated_autoscaler_is_the_one_of_the_manifest() {
    let manifest = file("deploy/kubernetes/autoscaling/scaled-object.yaml");
    let kept = kept("day.json");
    let mut lines = vec![
        format!("minReplicaCount: {}", kept["bounds"][0]),
        format!("maxReplicaCount: {}", kept["bounds"][1]),
        format!("threshold: \"{}\"", kept["step_fill"]),
        format!("pollingInterval: {}", autoscaler::INTERVAL.as_secs()),
        format!(
            "stabilizationWindowSeconds: {}",
            autoscaler::STABILIZATION.as_secs()
        ),
    ];
    for (count, period) in [autoscaler::UP, autoscaler::DOWN] {
        lines.push(format!("value: {count}"));
        lines.push(format!("periodSeconds: {}", period.as_secs()));
    }
    let settings = kept["day"].as_array().expect("rows").iter();
    let settings: Vec<&str> = settings.filter_map(|row| row["setting"].as_str()).collect();
    let load = manifest
        .split("threshold: \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let load = format!("load:{}", load.expect("the first trigger has a threshold"));
    assert!(
        settings.contains(&load.as_str()),
        "{load} is not in {settings:?}"
    );
    for line in lines {
        assert!(manifest.contains(&line), "the manifest does not say {line}");
    }
}
