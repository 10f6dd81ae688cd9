//! `GET /v1/loads`: the engine's load in the shape that load-aware routers read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use serde_json::{Value, json};

use super::route::{About, Route};
use crate::error::ApiError;
use crate::state::AppState;

/// The route.
pub fn route() -> Route {
    let about = About::get("The engine's load, for load-aware routers.");
    Route::new("/v1/loads", get(loads), about)
}

/// The load of one data-parallel rank at the engine's last step. Never waits for the engine
/// thread.
///
/// A replica whose engine is stalled or has ended answers 503, so that a router that sends to the
/// least load leaves it out.
///
/// The cache hit rate counts tokens since the start. Under full attention it is 0: requests share
/// no K/V.
async fn loads(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let backend = state.backend()?;
    let age = state.engine_age()?;
    let (load, limits) = (backend.engine.load(), backend.engine.limits());
    let waiting_tokens = match load.waiting {
        0 => 0,
        _ => state.waiting_tokens().now(),
    };
    let slots = |pages: u32| u64::from(pages) * u64::from(limits.page_size);
    let ratio = |count: u32, total: u32| f64::from(count) / f64::from(total.max(1));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Json(json!({
        "timestamp": rfc3339(now.unwrap_or_default()),
        "dp_rank_count": 1,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_waiting_uncached_tokens": waiting_tokens,
            "num_total_reqs": load.running + load.waiting,
            "num_used_tokens": slots(load.pages_used),
            "max_total_num_tokens": slots(limits.pages),
            "token_usage": ratio(load.pages_used, limits.pages),
            "gen_throughput": backend.metrics.generated_per_second(),
            "cache_hit_rate": backend.metrics.prefix_hit_rate(),
            "utilization": ratio(load.running, limits.max_running),
            "max_running_requests": limits.max_running,
            "engine_age_seconds": age.as_secs_f64(),
        }],
    })))
}

/// A time since 1970 as `2026-01-31T23:59:59Z`.
fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the `days`-th day since 1970-01-01, Gregorian. Computed with years that
/// begin in March, so that a leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_400_YEARS: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / (DAYS_PER_400_YEARS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gregorian() {
        let date = |seconds| rfc3339(Duration::from_secs(seconds));
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_760_000_000), "2025-10-09T08:53:20Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
