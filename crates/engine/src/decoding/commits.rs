//! The registry of commit rules: names, settings, defaults.

use decode::{AnswerSpan, CommitConfig, Offset, Rank};

use super::resolve::Resolver;
use super::spec::{Setting, SpecError, SpecFault, error};

/// A commit rule by its public name.
#[derive(Clone, Copy)]
pub struct CommitInfo {
    /// `commit` of a request.
    pub name: &'static str,
    /// The settings it reads.
    pub reads: &'static [&'static str],
    /// What the model must bring for it.
    pub needs: Option<Need>,
    /// The schedules it goes with.
    pub schedules: &'static [&'static str],
    /// The cache policies it goes with.
    pub caches: &'static [&'static str],
    /// What it commits, one line.
    pub summary: &'static str,
    build: fn(&Resolver<'_>) -> CommitConfig,
}

/// What a commit rule needs that not every model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A filter trained for the model.
    Filter,
    /// Weights trained to rewrite committed tokens.
    Edits,
}

impl Need {
    /// Why a model without it is refused; reads on from the rule's name.
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Filter => "needs a filter trained for the model, and none was loaded",
            Self::Edits => {
                "needs weights that were trained to rewrite tokens, and this model's were not \
                 (`force` runs it all the same)"
            }
        }
    }
}

/// Names of [`COMMITS`], in order.
pub(super) const NAMES: &[&str] = names!(COMMITS);

const ANY_SCHEDULE: &[&str] = super::schedules::NAMES;
const ANY_CACHE: &[&str] = super::caches::NAMES;
/// Rules that speak of a block as a whole.
const BLOCKS: &[&str] = &["block_wise"];
/// Policies that the block-wise schedule goes with.
const BLOCK_CACHES: &[&str] = &["dual", "none", "prefix", "elastic", "exact"];
/// Policies under which every forward computes the whole block.
const WHOLE_BLOCK: &[&str] = &["none", "prefix", "dual"];
/// Policies under which every forward computes all masks of the canvas.
const WHOLE_CANVAS: &[&str] = &["none", "prefix"];

/// Every commit rule, with the defaults of its authors.
pub const COMMITS: &[CommitInfo] = &[
    CommitInfo {
        name: "threshold",
        reads: &["threshold"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "every mask whose confidence reaches the threshold",
        build: |of| CommitConfig::Threshold {
            threshold: of.number("threshold", 0.9),
        },
    },
    CommitInfo {
        name: "top_k",
        reads: &["tokens_per_step"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "so many of the most confident masks",
        build: |of| CommitConfig::TopK {
            tokens_per_step: of.count("tokens_per_step", 1),
        },
    },
    CommitInfo {
        name: "scheduled",
        reads: &["denoising_steps", "rank"],
        needs: None,
        schedules: BLOCKS,
        caches: BLOCK_CACHES,
        summary: "as many of the surest masks as a timetable of so many forwards says",
        build: |of| CommitConfig::Scheduled {
            steps: match of.lookup("denoising_steps") {
                Some(Setting::Integer(steps)) => Some(steps as u32),
                _ => None,
            },
            rank: match of.name("rank", "confidence") {
                "margin" => Rank::Margin,
                "entropy" => Rank::Entropy,
                _ => Rank::Confidence,
            },
        },
    },
    CommitInfo {
        name: "factor",
        reads: &["factor"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "the n most confident masks with c_n >= 1 - factor / (n + 1)",
        build: |of| CommitConfig::Factor {
            factor: of.number("factor", 1.0),
        },
    },
    CommitInfo {
        name: "entropy",
        reads: &["entropy_threshold", "position_penalty"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "every mask whose entropy is low enough",
        build: |of| CommitConfig::Entropy {
            threshold: of.number("entropy_threshold", 0.5),
            penalty: of.number("position_penalty", 0.0),
        },
    },
    CommitInfo {
        name: "entropy_bound",
        reads: &["entropy_threshold"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "the narrowest masks, as long as the entropies of those before sum to little",
        build: |of| CommitConfig::EntropyBound {
            bound: of.number("entropy_threshold", 0.15),
        },
    },
    CommitInfo {
        name: "margin",
        reads: &["margin_threshold"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "every mask whose best token leads by enough",
        build: |of| CommitConfig::Margin {
            threshold: of.number("margin_threshold", 0.9),
        },
    },
    CommitInfo {
        name: "capped",
        reads: &["threshold", "tokens_per_step"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "a threshold, but at most so many masks",
        build: |of| CommitConfig::Capped {
            threshold: of.number("threshold", 0.95),
            most: of.count("tokens_per_step", 32),
        },
    },
    CommitInfo {
        name: "credit",
        reads: &["threshold"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "a threshold on confidences that grow while a token stays the favourite",
        build: |of| CommitConfig::Credit {
            threshold: of.number("threshold", 0.9),
        },
    },
    CommitInfo {
        name: "local_leap",
        reads: &["threshold"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "a threshold, and 0.75 within four positions of what reaches it",
        build: |of| CommitConfig::LocalLeap {
            threshold: of.number("threshold", 0.9),
        },
    },
    CommitInfo {
        name: "hierarchy",
        reads: &["threshold"],
        needs: None,
        schedules: ANY_SCHEDULE,
        caches: ANY_CACHE,
        summary: "a threshold, and the best of every run of masks",
        build: |of| CommitConfig::Hierarchy {
            threshold: of.number("threshold", 0.9),
        },
    },
    CommitInfo {
        name: "early_commit",
        reads: &["tokens_per_step", "answer_start", "answer_length"],
        needs: None,
        schedules: BLOCKS,
        caches: WHOLE_CANVAS,
        summary: "so many of the most confident masks, until the answer's place is certain",
        build: |of| CommitConfig::EarlyCommit {
            tokens_per_step: of.count("tokens_per_step", 1),
            answer: AnswerSpan {
                start: Offset::new(of.count("answer_start", 0)),
                len: of.count("answer_length", 5),
            },
        },
    },
    CommitInfo {
        name: "learned_filter",
        reads: &["filter_threshold"],
        needs: Some(Need::Filter),
        schedules: BLOCKS,
        caches: WHOLE_BLOCK,
        summary: "every mask that a small trained network accepts",
        build: |of| CommitConfig::LearnedFilter {
            threshold: of.number("filter_threshold", 0.96),
        },
    },
    CommitInfo {
        name: "draft_verify",
        reads: &["tokens_per_step", "draft_steps"],
        needs: None,
        schedules: BLOCKS,
        caches: WHOLE_BLOCK,
        summary: "top_k in fewer forwards: the next steps are guessed and verified together",
        build: |of| CommitConfig::DraftVerify {
            tokens_per_step: of.count("tokens_per_step", 1),
            draft_steps: of.count("draft_steps", 4),
        },
    },
    CommitInfo {
        name: "edit",
        reads: &["threshold", "edit_threshold", "edit_passes", "force"],
        needs: Some(Need::Edits),
        schedules: BLOCKS,
        caches: &["none", "prefix", "dual", "exact"],
        summary: "a threshold, and rewriting of the block's tokens until it is settled",
        build: |of| CommitConfig::Edit {
            threshold: of.number("threshold", 0.7),
            edit_threshold: of.number("edit_threshold", 0.5),
            most_passes: of.count("edit_passes", 16),
        },
    },
];

/// Whether some commit rule reads `name`.
pub(super) fn is_setting(name: &str) -> bool {
    COMMITS.iter().any(|rule| rule.reads.contains(&name))
}

/// Refuses a commit rule where the schedule or the cache policy does not go with it.
pub(super) fn refuse_company(name: &str, schedule: &str, cache: &str) -> Result<(), SpecError> {
    let rule = info(name);
    let refusal = |kind: &str, found: &str, allowed: &[&str]| {
        let allowed = allowed.join(" or ");
        let message = format!("{name} does not go with {kind} {found}: it needs {allowed}");
        Err(error("commit", SpecFault::Combination, message))
    };
    if !rule.schedules.contains(&schedule) {
        return refusal("schedule", schedule, rule.schedules);
    }
    if !rule.caches.contains(&cache) {
        return refusal("cache", cache, rule.caches);
    }
    Ok(())
}

fn info(name: &str) -> &'static CommitInfo {
    COMMITS
        .iter()
        .find(|rule| rule.name == name)
        .expect("names are checked when set")
}

/// The commit rule called `name`, and the refusal of settings that it does not read.
pub(super) fn resolve(of: &Resolver<'_>, name: &str) -> Result<CommitConfig, SpecError> {
    let rule = info(name);
    let members = COMMITS.iter().map(|rule| (rule.name, rule.reads));
    of.refuse_foreign("commit", rule.reads, members)?;
    Ok((rule.build)(of))
}
