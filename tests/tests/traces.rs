//! Step-by-step goldens of the reference AsyncLane: rows, commits and new lanes of every step, for six
//! problems under four cache policies.

use asynclane_tests::golden;
use asynclane_tests::run::{self, Outcome};
use decode::{Birth, Effect, ForwardKind, Role};
use serde_json::{Value, json};

/// Our steps in the shape of `demo-traces.json`; rows as one ascending list of positions.
fn ours(outcome: &Outcome) -> Vec<Value> {
    let steps = outcome.steps.iter().map(|step| {
        let mut rows: Vec<u32> = step.rows.iter().flatten().map(|row| row.get()).collect();
        rows.sort_unstable();
        let lanes: Vec<u32> = step.lanes.iter().map(|lane| lane.0).collect();
        json!({
            "step": step.step,
            "kind": if step.kind == ForwardKind::Decode { "decode" } else { "refresh" },
            "lanes": lanes,
            "rows": rows,
            "commits": commits(&step.effects),
            "new_lanes": new_lanes(&step.effects),
            "frontier": step.frontier.get(),
            "canvas": step.canvas,
        })
    });
    steps.collect()
}

fn commits(effects: &[Effect]) -> Vec<Value> {
    let commits = effects.iter().filter_map(|effect| match *effect {
        Effect::Commit(commit) => Some((commit.offset.get(), commit.token)),
        _ => None,
    });
    let mut commits: Vec<(u32, u32)> = commits.collect();
    commits.sort_unstable();
    commits.into_iter().map(|commit| json!(commit)).collect()
}

fn new_lanes(effects: &[Effect]) -> Vec<Value> {
    let born = effects.iter().filter_map(|effect| match *effect {
        Effect::Start { lane, role, parent, start, len, birth } => Some(json!({
            "id": lane.0,
            "role": if role == Role::Refine { "refine" } else { "generate" },
            "parent": parent.map(|parent| parent.0),
            "start": start.get(),
            "len": len,
            "born_finished": birth == Birth::Finished,
        })),
        _ => None,
    });
    born.collect()
}

/// The recorded steps in the same shape: ranges become positions, probabilities are left out.
fn recorded(run: &Value) -> Vec<Value> {
    let steps = run["steps"].as_array().expect("a run has steps");
    steps.iter().cloned().map(normal).collect()
}

fn normal(mut step: Value) -> Value {
    let decode_list =
        |part: &Value| serde_json::from_value::<Vec<u64>>(part.clone()).expect("rows");
    let mut rows = Vec::new();
    for part in step["rows"].as_array().expect("rows") {
        match decode_list(part)[..] {
            // A pair of neighbours is the same as a range and as a list.
            [first, end] if first < end => rows.extend(first..end),
            ref list => rows.extend_from_slice(list),
        }
    }
    rows.sort_unstable();
    let commits = step["commits"].as_array().expect("commits").iter();
    let commits: Vec<Value> = commits.map(|commit| json!([commit[0], commit[1]])).collect();
    step["rows"] = json!(rows);
    step["commits"] = json!(commits);
    step
}

#[test]
fn every_step_is_the_reference_s() {
    let traces = golden::traces();
    let rows = traces["rows"].as_array().expect("problems");
    let budget = traces["L"].as_u64().expect("a budget") as u32;
    let mut compared = 0;
    for name in rows[0]["runs"].as_object().expect("runs").keys() {
        let mut executor = run::executor(512);
        let requests = rows.iter().map(|row| {
            let prompt = serde_json::from_value::<Vec<u32>>(row["prompt_ids"].clone());
            let prompt = prompt.expect("prompt ids");
            let task = row["task"].as_str().expect("a task");
            let settings = golden::settings(name, task).expect("a known run");
            run::request(&prompt, budget, &[1, 4], &settings)
        });
        let outcomes = run::run(&mut *executor, requests.collect());
        for (index, (row, outcome)) in rows.iter().zip(&outcomes).enumerate() {
            let (ours, theirs) = (ours(outcome), recorded(&row["runs"][name]));
            for (mine, reference) in ours.iter().zip(&theirs) {
                assert_eq!(mine, reference, "{name}, problem {index}");
            }
            assert_eq!(ours.len(), theirs.len(), "{name}, problem {index}: steps");
            compared += ours.len();
        }
    }
    assert!(compared > 200, "{compared} steps compared");
}
