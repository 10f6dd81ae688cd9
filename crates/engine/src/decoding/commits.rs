//! The registry of commit rules: names, settings, defaults.

use decode::CommitConfig;

use super::resolve::Resolver;
use super::spec::{SpecError, SpecFault, error};

/// A commit rule by its public name.
#[derive(Clone, Copy)]
pub struct CommitInfo {
    /// `commit` of a request.
    pub name: &'static str,
    /// The settings it reads, of [`SETTINGS`].
    pub reads: &'static [&'static str],
    /// What it commits, one line.
    pub summary: &'static str,
    build: fn(&Resolver<'_>) -> CommitConfig,
}

/// Every setting that some commit rule reads.
const SETTINGS: &[&str] = &[
    "threshold",
    "tokens_per_step",
    "factor",
    "entropy_threshold",
    "margin_threshold",
];

/// Names of [`COMMITS`], in order.
pub(super) const NAMES: &[&str] = &[
    "threshold",
    "top_k",
    "factor",
    "entropy",
    "entropy_bound",
    "margin",
    "capped",
    "credit",
    "local_leap",
    "hierarchy",
];

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
    SETTINGS.contains(&name)
}

/// The commit rule called `name`, and the refusal of settings that it does not read.
pub(super) fn resolve(of: &Resolver<'_>, name: &str) -> Result<CommitConfig, SpecError> {
    let rule = COMMITS
        .iter()
        .find(|rule| rule.name == name)
        .expect("names are checked when set");
    let foreign = |setting: &&&str| !rule.reads.contains(setting) && of.spec.get(setting).is_some();
    if let Some(setting) = SETTINGS.iter().find(foreign) {
        let readers = COMMITS.iter().filter(|rule| rule.reads.contains(setting));
        let readers: Vec<&str> = readers.map(|rule| rule.name).collect();
        let message = format!("is read by commit {} only", readers.join(", "));
        return Err(error(setting, SpecFault::Combination, message));
    }
    Ok((rule.build)(of))
}

#[cfg(test)]
mod tests {
    use super::{COMMITS, NAMES, SETTINGS};

    #[test]
    fn the_registry_is_complete() {
        let names: Vec<&str> = COMMITS.iter().map(|rule| rule.name).collect();
        assert_eq!(names, NAMES);
        let read: Vec<&&str> = COMMITS.iter().flat_map(|rule| rule.reads).collect();
        assert!(SETTINGS.iter().all(|setting| read.contains(&setting)));
        assert!(read.iter().all(|setting| SETTINGS.contains(setting)));
    }
}
