//! The registry of lane schedules: names, settings, the cache policies they go with.

use decode::{AsyncLaneConfig, Boundary, NumericPeriod, ScheduleConfig};

use super::resolve::Resolver;
use super::spec::{Setting, SpecError, SpecFault, error};

/// A lane schedule by its public name.
#[derive(Clone, Copy)]
pub struct ScheduleInfo {
    /// `schedule` of a request.
    pub name: &'static str,
    /// The settings that it, or a cache policy on its behalf, reads.
    pub reads: &'static [&'static str],
    /// The cache policies it goes with, the default first.
    pub caches: &'static [&'static str],
    /// Which lanes it runs, one line.
    pub summary: &'static str,
    build: fn(&Resolver<'_>) -> Result<ScheduleConfig, SpecError>,
}

/// Names of [`SCHEDULES`], in order.
pub(super) const NAMES: &[&str] = names!(SCHEDULES);

/// Every lane schedule, with the defaults of its authors.
pub const SCHEDULES: &[ScheduleInfo] = &[
    ScheduleInfo {
        name: "asynclane",
        reads: &[
            "rows",
            "refresh",
            "refresh_margin",
            "drift_threshold",
            "block_length",
            "draft_threshold",
            "lookahead",
            "max_lanes",
            "min_fill",
            "min_clock",
            "fork",
            "numeric",
            "fork_when_complete",
            "lane_budget",
            "coupled",
        ],
        caches: &["fused", "snapshot", "fresh", "elastic", "exact"],
        summary: "lanes that fork at the end of a sentence: one refines, one goes on",
        build: asynclane,
    },
    ScheduleInfo {
        name: "block_wise",
        reads: &["block_length", "refresh_margin", "drift_threshold"],
        caches: &["dual", "none", "prefix", "elastic", "exact"],
        summary: "one block after the other",
        build: |of| {
            let block_length = of.count("block_length", 32);
            Ok(ScheduleConfig::BlockWise { block_length })
        },
    },
    ScheduleInfo {
        name: "adaptive_block",
        reads: &["block_length", "delimiter_threshold"],
        caches: &["dual", "none", "prefix"],
        summary: "blocks that end where the model expects a delimiter",
        build: |of| {
            Ok(ScheduleConfig::AdaptiveBlock {
                block_length: of.count("block_length", 32),
                delimiter_threshold: of.number("delimiter_threshold", 0.3),
            })
        },
    },
    ScheduleInfo {
        name: "multi_block",
        reads: &["block_length", "add_block_threshold"],
        caches: &["dual", "none", "prefix"],
        summary: "the next block opens before the last one is full",
        build: |of| {
            Ok(ScheduleConfig::MultiBlock {
                block_length: of.count("block_length", 32),
                add_threshold: of.number("add_block_threshold", 0.1),
            })
        },
    },
    ScheduleInfo {
        name: "window",
        reads: &[
            "block_length",
            "window",
            "refresh",
            "refresh_margin",
            "drift_threshold",
        ],
        caches: &["dual", "none", "elastic"],
        summary: "the first masks, sliding; far masks are dropped between refreshes",
        build: window,
    },
    ScheduleInfo {
        name: "streaming",
        reads: &["window"],
        caches: &["exact"],
        summary: "a window that begins at the first open position and moves with it",
        build: |of| {
            let window = of.count("window", 16);
            Ok(ScheduleConfig::Streaming { window })
        },
    },
];

/// The schedule called `name`, and the refusal of settings that it does not read.
pub(super) fn resolve(of: &Resolver<'_>, name: &str) -> Result<ScheduleConfig, SpecError> {
    let schedule = info(name);
    let members = SCHEDULES.iter().map(|other| (other.name, other.reads));
    of.refuse_foreign("schedule", schedule.reads, members)?;
    (schedule.build)(of)
}

/// The name of the cache policy to use with schedule `name`.
pub(super) fn cache(of: &Resolver<'_>, name: &str) -> Result<&'static str, SpecError> {
    let caches = info(name).caches;
    let wanted = of.name("cache", caches[0]);
    if caches.contains(&wanted) {
        return Ok(wanted);
    }
    let last = caches.len() - 1;
    let use_one = match caches[..last].join(", ") {
        others if others.is_empty() => caches[last].to_owned(),
        others => format!("{others} or {}", caches[last]),
    };
    let message = format!("{wanted} does not go with schedule {name}: use {use_one}");
    Err(error("cache", SpecFault::Combination, message))
}

fn info(name: &str) -> &'static ScheduleInfo {
    SCHEDULES
        .iter()
        .find(|schedule| schedule.name == name)
        .expect("names are checked when set")
}

fn asynclane(of: &Resolver<'_>) -> Result<ScheduleConfig, SpecError> {
    let numeric = match of.name("numeric", "next") {
        "strict" => NumericPeriod::Strict,
        _ => NumericPeriod::Next,
    };
    let fork = match of.name("fork", "auto") {
        "off" => None,
        "sentence" => Some(Boundary::Sentence(numeric)),
        "newline" => Some(Boundary::Newline),
        _ => Some(Boundary::Auto(numeric)),
    };
    Ok(ScheduleConfig::AsyncLane(AsyncLaneConfig {
        block_length: of.count("block_length", 32),
        lookahead: of.count("lookahead", 32),
        draft_threshold: Some(of.number("draft_threshold", 0.9)),
        fork,
        min_fill: of.number("min_fill", 0.5),
        min_clock: of.count("min_clock", 2),
        fork_when_complete: of.flag("fork_when_complete", true),
        lane_budget: of.flag("lane_budget", false),
        max_lanes: of.count("max_lanes", 16),
        coupled: of.flag("coupled", false),
    }))
}

fn window(of: &Resolver<'_>) -> Result<ScheduleConfig, SpecError> {
    let (active, outer) = (of.count("block_length", 16), of.count("window", 64));
    if outer < active {
        let message = format!("must be at least block_length = {active}, got {outer}");
        return Err(error("window", SpecFault::Combination, message));
    }
    let between = match of.lookup("refresh") {
        None => 31,
        Some(Setting::Integer(steps)) => steps as u32,
        Some(_) => {
            let message = "must be an integer with schedule window".to_owned();
            return Err(error("refresh", SpecFault::Combination, message));
        }
    };
    Ok(ScheduleConfig::Window {
        active,
        outer,
        cycle: between.saturating_add(1),
    })
}
