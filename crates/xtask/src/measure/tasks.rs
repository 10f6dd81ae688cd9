//! What a newcomer touches to add a thing, counted on an existing thing of its kind.

use std::fmt;

use super::mentions::{Mentions, mentions};
use crate::repository::File;

/// A typical addition, counted on one that exists.
#[derive(Clone, Debug)]
pub struct Task {
    /// What is added.
    pub adds: &'static str,
    /// The existing one that is counted.
    pub sample: &'static str,
    /// Lines outside its own file that name it.
    pub mentions: Mentions,
}

/// An existing thing and its own files.
struct Sample {
    adds: &'static str,
    name: &'static str,
    own: &'static [&'static str],
}

const SAMPLES: [Sample; 5] = [
    Sample {
        adds: "a commit rule",
        name: "early_commit",
        own: &["crates/decode/src/commit/early_commit.rs"],
    },
    Sample {
        adds: "a cache policy",
        name: "elastic",
        own: &["crates/engine/src/cache/elastic.rs"],
    },
    Sample {
        adds: "a family of checkpoints",
        name: "sdar",
        own: &[
            "crates/model/src/arch/qwen.rs",
            "crates/model/src/config/qwen.rs",
        ],
    },
    Sample {
        adds: "an endpoint",
        name: "loads",
        own: &["crates/server/src/api/loads.rs"],
    },
    Sample {
        adds: "another order of waiting sequences",
        name: "by_priority",
        own: &["crates/engine/src/scheduler/order.rs"],
    },
];

/// Beginnings of paths that choose among what exists; an addition does not touch them. A schedule
/// may name caches, and a new cache policy names its schedules itself.
const CHOOSE: [&str; 4] = [
    "crates/decode/src/schedule/",
    "crates/engine/src/decoding/presets.rs",
    "crates/lab/",
    "crates/xtask/",
];

/// Counts every task.
pub(super) fn tasks(files: &[File]) -> Vec<Task> {
    SAMPLES
        .iter()
        .map(|sample| {
            let own = |path: &str| {
                let chooses = CHOOSE.iter().any(|chooser| path.starts_with(chooser));
                chooses || sample.own.contains(&path) || !path.contains("/src/")
            };
            Task {
                adds: sample.adds,
                sample: sample.name,
                mentions: mentions(files, sample.name, &own),
            }
        })
        .collect()
}

impl Task {
    /// Files that name the sample, its own files not counted.
    pub fn files(&self) -> usize {
        self.mentions.len()
    }

    /// Lines that name it in these files.
    pub fn lines(&self) -> usize {
        self.mentions.values().map(|lines| lines.len()).sum()
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, lines) = (self.files(), self.lines());
        writeln!(
            f,
            "{} (`{}`): {files} files, {lines} lines",
            self.adds, self.sample
        )?;
        for (path, lines) in &self.mentions {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            writeln!(f, "  {path}:{}", lines.join(","))?;
        }
        Ok(())
    }
}
