//! The golden outputs in `tests/goldens/` and the settings that reproduce them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// `demo-128.json`.
#[derive(Debug, Deserialize)]
pub struct Goldens {
    /// Budget of every run.
    #[serde(rename = "L")]
    pub budget: u32,
    /// Stop set of every run.
    pub stop_ids: Vec<u32>,
    /// The problems.
    pub rows: Vec<Row>,
}

/// One problem.
#[derive(Debug, Deserialize)]
pub struct Row {
    /// Number.
    pub id: u32,
    /// `sums`, `snippets` or `lists`.
    pub task: String,
    /// The user's text.
    pub prompt: String,
    /// Prompt ids after the chat template.
    pub prompt_ids: Vec<u32>,
    /// Expected outputs by run name.
    pub runs: BTreeMap<String, Run>,
}

/// One expected output.
#[derive(Debug, Deserialize)]
pub struct Run {
    /// The code that produced it.
    pub source: String,
    /// The ids; the whole canvas if the code is the official one.
    pub ids: Vec<u32>,
    /// Forward passes.
    pub nfe: u32,
    /// Smallest distance of any decision from its threshold.
    pub margin: f64,
    /// Forks.
    pub forks: Option<u32>,
    /// Split offsets in order.
    pub splits: Option<Vec<u32>>,
    /// Commits in the lookahead.
    pub drafts: Option<u32>,
    /// Refreshes after the first forward.
    pub refreshes: Option<u32>,
    /// Rows of all forwards.
    pub fwd_tokens: Option<u64>,
}

impl Run {
    /// True if the public Fast-dLLM code made it.
    pub fn is_official(&self) -> bool {
        self.source.starts_with("Fast-dLLM")
    }
}

/// Reads `demo-128.json`.
pub fn load() -> Goldens {
    let text = std::fs::read_to_string(path("demo-128.json")).expect("the goldens are in the repo");
    serde_json::from_str(&text).expect("the goldens are valid")
}

/// Reads `demo-traces.json`.
pub fn traces() -> serde_json::Value {
    let text = std::fs::read_to_string(path("demo-traces.json"));
    let text = text.expect("the traces are in the repo");
    serde_json::from_str(&text).expect("the traces are valid")
}

/// The checkpoint that all goldens and traces were made with, a Hugging Face folder. It is not the
/// embedded demo model, which may change while the goldens stand.
pub fn checkpoint() -> PathBuf {
    path("checkpoint")
}

fn path(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("goldens").join(name)
}

/// The `diffusion` object of a run, as `key=value` pairs.
pub fn settings(run: &str, task: &str) -> Option<String> {
    let block = "schedule=block_wise,block_length=32,prune=false";
    let fork = match task {
        "snippets" => "newline",
        _ => "sentence",
    };
    let lanes = "preset=asynclane,commit=threshold,threshold=0.9,draft_threshold=0.9,\
                 block_length=32,lookahead=32,min_fill=0.5,min_clock=2,refresh_margin=64,\
                 lane_budget=true,lone_stops=true";
    let asynclane = |rest: &str| format!("{lanes},fork={fork},{rest}");
    let threshold = |cache: &str| format!("{block},commit=threshold,threshold=0.9,cache={cache}");
    let snapshot = "cache=snapshot,rows=all";
    let fresh = "cache=fresh,rows=all,refresh=lane,numeric=next";
    Some(match run {
        "vanilla_steps64" => format!("{block},commit=top_k,tokens_per_step=2,cache=none"),
        "threshold0.9" => threshold("none"),
        "prefix0.9" => threshold("prefix"),
        "dual0.9" => threshold("dual"),
        "asynclane_snapshot" => asynclane(&format!("{snapshot},refresh=lane,numeric=next")),
        "asynclane_snapshot_strict" => {
            asynclane(&format!("{snapshot},refresh=lane,numeric=strict"))
        }
        "asynclane_snapshot_every12" => {
            asynclane(&format!("{snapshot},refresh=12,numeric=next,fork_when_complete=false"))
        }
        "asynclane_fresh" => asynclane(fresh),
        "asynclane_fresh_nofork" => format!("{lanes},fork=off,{fresh}"),
        "asynclane_fresh_coupled" => asynclane(&format!("{fresh},coupled=true")),
        "asynclane_fused" => asynclane("cache=fused,rows=all,refresh=lane,numeric=next"),
        "asynclane_fused_open" => asynclane("cache=fused,rows=open,refresh=lane,numeric=next"),
        _ => return None,
    })
}
