//! Metrics of the pools of threads.

use engine::PoolLoad;
use prometheus::GaugeVec;

use super::register::Register;

/// The pools, as they are named in `/health`.
const POOLS: [&str; 4] = ["encode", "encode_long", "compile", "grammar"];
const STATES: [&str; 3] = ["running", "waiting", "stuck"];

/// Jobs of the pools, set at each scrape.
#[derive(Debug)]
pub struct Pools(GaugeVec);

impl Pools {
    /// Registers them.
    pub fn new(register: &Register<'_>) -> Self {
        let about =
            "Jobs of a pool of threads; stuck ones did not end in time and keep a thread each";
        let gauges = register.gauge_family("pool_jobs", about, ["pool", "state"]);
        for pool in POOLS {
            for state in STATES {
                gauges.with_label_values(&[pool, state]);
            }
        }
        Self(gauges)
    }

    /// Sets them to what the pools do, by the pools' names.
    pub fn set(&self, pools: &[(&'static str, PoolLoad)]) {
        for (pool, load) in pools {
            let counts = [load.running, load.waiting, load.stuck];
            for (state, count) in STATES.iter().zip(counts) {
                self.0.with_label_values(&[pool, state]).set(count.into());
            }
        }
    }
}
