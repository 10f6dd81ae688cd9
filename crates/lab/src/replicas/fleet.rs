//! Replicas that come and go: starting, serving, draining.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;

use super::autoscaler::INTERVAL;
use super::replica::{Kind, Replica};
use super::router::least;
use super::trace::Arrival;

/// Period of the mean fill of a step, as in the query of the autoscaler.
const FILL_PERIOD: Duration = Duration::from_secs(300);

/// Sums over all replicas, as of the last scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Running sequences.
    pub running: f64,
    /// Waiting sequences.
    pub waiting: f64,
    /// Shares of the KV pages that sequences hold.
    pub kv: f64,
    /// Mean rows of a step as shares of the row budget; idle replicas have none.
    pub fill: f64,
}

struct Member {
    replica: Replica,
    created: Duration,
    ready: Duration,
    draining: bool,
    /// Rows and steps at the last scrapes.
    scraped: VecDeque<(u64, u64)>,
}

/// The replicas, the oldest first.
pub struct Fleet {
    kind: Kind,
    row_budget: u32,
    members: Vec<Member>,
    signals: Signals,
    turn: usize,
    /// Hours of replicas that are gone.
    hours: f64,
    now: Duration,
    /// Time to the first token of every request.
    firsts: Vec<Duration>,
}

impl Fleet {
    /// So many replicas that are ready.
    ///
    /// # Errors
    /// Sizes that make no replica.
    pub fn new(kind: Kind, count: u32, row_budget: u32) -> Result<Self> {
        let mut fleet = Self {
            kind,
            row_budget,
            members: Vec::new(),
            signals: Signals::default(),
            turn: 0,
            hours: 0.0,
            now: Duration::ZERO,
            firsts: Vec::new(),
        };
        fleet.resize(count, Duration::ZERO, Duration::ZERO)?;
        Ok(fleet)
    }

    /// Replicas that are not draining.
    pub fn size(&self) -> u32 {
        self.members.iter().filter(|of| !of.draining).count() as u32
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.members.iter().map(|of| of.replica.in_flight()).sum()
    }

    /// When the next step ends.
    pub fn next_end(&self) -> Option<Duration> {
        self.members
            .iter()
            .filter_map(|of| of.replica.until())
            .min()
    }

    /// What the last scrape found.
    pub fn signals(&self) -> Signals {
        self.signals
    }

    /// Adds replicas that are ready after `start`, or drains the newest.
    ///
    /// # Errors
    /// Sizes that make no replica.
    pub fn resize(&mut self, count: u32, now: Duration, start: Duration) -> Result<()> {
        let size = self.size();
        for _ in size..count {
            self.members.push(Member {
                replica: Replica::new(&self.kind)?,
                created: now,
                ready: now + start,
                draining: false,
                scraped: VecDeque::new(),
            });
        }
        let serving = self.members.iter_mut().rev().filter(|of| !of.draining);
        let surplus = size.saturating_sub(count) as usize;
        serving.take(surplus).for_each(|of| of.draining = true);
        self.remove(now);
        Ok(())
    }

    /// Sends a request to the ready replica with the fewest in flight. False if its queue is full.
    ///
    /// # Errors
    /// A request that can never be served, a failed step.
    pub fn submit(&mut self, request: &Arrival, now: Duration) -> Result<bool> {
        let open = |of: &Member| !of.draining && of.ready <= now;
        let load = |of: &Member| {
            if open(of) {
                of.replica.in_flight()
            } else {
                usize::MAX
            }
        };
        let loads: Vec<usize> = self.members.iter().map(load).collect();
        let chosen = least(&loads, self.turn);
        self.turn += 1;
        let asked = self.kind.request(request.prompt.clone(), request.answer);
        self.members[chosen].replica.submit(asked, 0, now)
    }

    /// Ends the steps that end at `now`.
    ///
    /// # Errors
    /// A failed step.
    pub fn end(&mut self, now: Duration) -> Result<()> {
        for member in &mut self.members {
            if member.replica.until() == Some(now) {
                let done = member.replica.end()?;
                self.firsts.extend(done.iter().map(|one| one.first));
            }
        }
        self.remove(now);
        Ok(())
    }

    /// Reads the gauges of the ready replicas.
    pub fn scrape(&mut self, now: Duration) {
        let mut sum = Signals::default();
        let kept = (FILL_PERIOD.as_secs() / INTERVAL.as_secs()) as usize + 1;
        for member in self.members.iter_mut().filter(|of| of.ready <= now) {
            let gauges = member.replica.gauges();
            sum.running += f64::from(gauges.running);
            sum.waiting += f64::from(gauges.waiting);
            sum.kv += f64::from(gauges.pages_used) / f64::from(gauges.pages_total);
            let last = (member.replica.rows, member.replica.steps);
            member.scraped.push_back(last);
            if member.scraped.len() > kept {
                member.scraped.pop_front();
            }
            let first = member.scraped[0];
            if last.1 > first.1 {
                let rows = (last.0 - first.0) as f64 / (last.1 - first.1) as f64;
                sum.fill += rows / f64::from(self.row_budget);
            }
        }
        self.signals = sum;
    }

    /// Hours of all replicas together, and the time to the first token of every request.
    pub fn close(mut self) -> (f64, Vec<Duration>) {
        let alive = self.members.drain(..);
        let hours: f64 = alive.map(|of| hours(self.now, of.created)).sum();
        (self.hours + hours, self.firsts)
    }

    fn remove(&mut self, now: Duration) {
        self.now = now;
        let ended = |of: &mut Member| of.draining && of.replica.in_flight() == 0;
        let gone = self.members.extract_if(.., ended);
        self.hours += gone.map(|of| hours(now, of.created)).sum::<f64>();
    }
}

fn hours(now: Duration, created: Duration) -> f64 {
    now.saturating_sub(created).as_secs_f64() / 3600.0
}
