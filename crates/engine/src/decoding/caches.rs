//! The registry of cache policies: names, settings, defaults.

use step::Attention;

use super::resolve::Resolver;
use super::spec::{Setting, SpecError, SpecFault, error};
use super::{CacheConfig, Compact, Refresh, RowSelection};

/// A cache policy by its public name.
#[derive(Clone, Copy)]
pub struct CacheInfo {
    /// `cache` of a request.
    pub name: &'static str,
    /// The settings it reads.
    pub reads: &'static [&'static str],
    /// Which K/V a forward reads, one line.
    pub summary: &'static str,
    build: fn(&Resolver<'_>, &str) -> Result<CacheConfig, SpecError>,
}

/// Names of [`CACHES`], in order.
pub(super) const NAMES: &[&str] = names!(CACHES);

/// Every cache policy.
pub const CACHES: &[CacheInfo] = &[
    CacheInfo {
        name: "none",
        // The schedule `window` reads it, here and with `dual`.
        reads: &["refresh"],
        summary: "every forward computes the whole canvas",
        build: |_, _| Ok(CacheConfig::None),
    },
    CacheInfo {
        name: "prefix",
        reads: &[],
        summary: "K/V left of the block, from a full forward at its start",
        build: |_, _| Ok(CacheConfig::Prefix),
    },
    CacheInfo {
        name: "dual",
        reads: &["refresh"],
        summary: "K/V of the whole canvas but the block, from a full forward at its start",
        build: |_, schedule| match schedule {
            "window" => Ok(CacheConfig::Window),
            _ => Ok(CacheConfig::Dual),
        },
    },
    CacheInfo {
        name: "snapshot",
        reads: &["rows", "refresh", "refresh_margin"],
        summary: "a fork clones the page table, lanes write to pages of their own",
        build: |of, _| {
            refuse_open(of, "snapshot")?;
            Ok(CacheConfig::Snapshot(compact(
                of,
                "snapshot",
                Refresh::Lane,
            )?))
        },
    },
    CacheInfo {
        name: "fresh",
        reads: &["rows", "refresh", "refresh_margin"],
        summary: "one table, a lane sees up to its own end",
        build: |of, _| {
            refuse_open(of, "fresh")?;
            Ok(CacheConfig::Fresh(compact(of, "fresh", Refresh::Lane)?))
        },
    },
    CacheInfo {
        name: "fused",
        reads: &["rows", "refresh", "refresh_margin"],
        summary: "one table, every row sees every written slot",
        build: |of, _| {
            let rows = match of.cache_setting("fused", "rows") {
                Some(Setting::Name("all")) => RowSelection::All,
                _ => RowSelection::Open,
            };
            let compact = compact(of, "fused", Refresh::Every(32))?;
            Ok(CacheConfig::Fused { compact, rows })
        },
    },
    CacheInfo {
        name: "elastic",
        reads: &["refresh_margin", "drift_threshold"],
        summary: "one table, open rows, renewed when watched tokens have drifted",
        build: |of, _| {
            Ok(CacheConfig::Elastic {
                margin: margin(of)?,
                threshold: of.number("drift_threshold", 0.9),
            })
        },
    },
    CacheInfo {
        name: "exact",
        reads: &[],
        summary: "every token forwarded once when it is final; for causal and block-causal weights",
        build: |_, _| Ok(CacheConfig::Exact),
    },
];

/// Whether the policy called `name` goes with weights trained with `attention`: K/V that never
/// change need weights that look back only, and these have no other.
pub fn cache_goes_with(name: &str, attention: Attention) -> bool {
    (attention == Attention::Full) != (name == CacheConfig::Exact.name())
}

/// The policy called `name`, under the schedule `schedule`, and the refusal of settings that it
/// does not read.
pub(super) fn resolve(
    of: &Resolver<'_>,
    name: &str,
    schedule: &str,
) -> Result<CacheConfig, SpecError> {
    let cache = CACHES
        .iter()
        .find(|cache| cache.name == name)
        .expect("names are checked when set");
    let members = CACHES.iter().map(|cache| (cache.name, cache.reads));
    of.refuse_foreign("cache", cache.reads, members)?;
    (cache.build)(of, schedule)
}

fn compact(of: &Resolver<'_>, name: &str, default: Refresh) -> Result<Compact, SpecError> {
    let refresh = match of.cache_setting(name, "refresh") {
        Some(Setting::Name("never")) => Refresh::Never,
        Some(Setting::Integer(steps)) => Refresh::Every(steps as u32),
        Some(Setting::Name(_)) => Refresh::Lane,
        _ => default,
    };
    let margin = margin(of)?;
    Ok(Compact { refresh, margin })
}

fn margin(of: &Resolver<'_>) -> Result<u32, SpecError> {
    let needed = of.count("block_length", 32) + of.count("lookahead", 32);
    let margin = of.count("refresh_margin", i64::from(needed));
    if margin < needed {
        let message = format!("must be at least block_length + lookahead = {needed}, got {margin}");
        return Err(error("refresh_margin", SpecFault::Combination, message));
    }
    Ok(margin)
}

fn refuse_open(of: &Resolver<'_>, name: &str) -> Result<(), SpecError> {
    if of.cache_setting(name, "rows") != Some(Setting::Name("open")) {
        return Ok(());
    }
    let message = format!("open needs cache fused, got cache {name}");
    Err(error("rows", SpecFault::Combination, message))
}
