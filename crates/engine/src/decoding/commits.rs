//! The registry of commit rules: names, settings, defaults.

use decode::CommitConfig;

use super::resolve::Resolver;
use super::spec::SpecError;

/// A commit rule by its public name.
#[derive(Clone, Copy)]
pub struct CommitInfo {
    /// `commit` of a request.
    pub name: &'static str,
    /// The settings it reads.
    pub reads: &'static [&'static str],
    /// What it commits, one line.
    pub summary: &'static str,
    build: fn(&Resolver<'_>) -> CommitConfig,
}

/// Names of [`COMMITS`], in order.
pub(super) const NAMES: &[&str] = names!(COMMITS);

/// Every commit rule, with the defaults of its authors.
pub const COMMITS: &[CommitInfo] = &[
    CommitInfo {
        name: "threshold",
        reads: &["threshold"],
        summary: "every mask whose confidence reaches the threshold",
        build: |of| CommitConfig::Threshold {
            threshold: of.number("threshold", 0.9),
        },
    },
    CommitInfo {
        name: "top_k",
        reads: &["tokens_per_step"],
        summary: "so many of the most confident masks",
        build: |of| CommitConfig::TopK {
            tokens_per_step: of.count("tokens_per_step", 1),
        },
    },
    CommitInfo {
        name: "factor",
        reads: &["factor"],
        summary: "the n most confident masks with c_n >= 1 - factor / (n + 1)",
        build: |of| CommitConfig::Factor {
            factor: of.number("factor", 1.0),
        },
    },
    CommitInfo {
        name: "entropy",
        reads: &["entropy_threshold"],
        summary: "every mask whose entropy is low enough",
        build: |of| CommitConfig::Entropy {
            threshold: of.number("entropy_threshold", 0.5),
        },
    },
    CommitInfo {
        name: "entropy_bound",
        reads: &["entropy_threshold"],
        summary: "the narrowest masks, as long as the entropies of those before sum to little",
        build: |of| CommitConfig::EntropyBound {
            bound: of.number("entropy_threshold", 0.15),
        },
    },
    CommitInfo {
        name: "margin",
        reads: &["margin_threshold"],
        summary: "every mask whose best token leads by enough",
        build: |of| CommitConfig::Margin {
            threshold: of.number("margin_threshold", 0.9),
        },
    },
    CommitInfo {
        name: "capped",
        reads: &["threshold", "tokens_per_step"],
        summary: "a threshold, but at most so many masks",
        build: |of| CommitConfig::Capped {
            threshold: of.number("threshold", 0.95),
            most: of.count("tokens_per_step", 32),
        },
    },
    CommitInfo {
        name: "credit",
        reads: &["threshold"],
        summary: "a threshold on confidences that grow while a token stays the favourite",
        build: |of| CommitConfig::Credit {
            threshold: of.number("threshold", 0.9),
        },
    },
    CommitInfo {
        name: "local_leap",
        reads: &["threshold"],
        summary: "a threshold, and 0.75 within four positions of what reaches it",
        build: |of| CommitConfig::LocalLeap {
            threshold: of.number("threshold", 0.9),
        },
    },
    CommitInfo {
        name: "hierarchy",
        reads: &["threshold"],
        summary: "a threshold, and the best of every run of masks",
        build: |of| CommitConfig::Hierarchy {
            threshold: of.number("threshold", 0.9),
        },
    },
];

/// Whether some commit rule reads `name`.
pub(super) fn is_setting(name: &str) -> bool {
    COMMITS.iter().any(|rule| rule.reads.contains(&name))
}

/// The commit rule called `name`, and the refusal of settings that it does not read.
pub(super) fn resolve(of: &Resolver<'_>, name: &str) -> Result<CommitConfig, SpecError> {
    let rule = COMMITS
        .iter()
        .find(|rule| rule.name == name)
        .expect("names are checked when set");
    let members = COMMITS.iter().map(|rule| (rule.name, rule.reads));
    of.refuse_foreign("commit", rule.reads, members)?;
    Ok((rule.build)(of))
}
