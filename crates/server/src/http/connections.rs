//! The open connections: at most as many as configured, the longest idle one leaves first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id};

use super::progress::{Progress, Stage};

/// Connections beyond the configured ones on which probes are answered and other requests refused.
pub const RESERVED: usize = 16;
/// A connection whose request is incomplete for longer than this may be closed to make room.
const INCOMPLETE_TIMEOUT: Duration = Duration::from_secs(5);

/// The open connections.
#[derive(Debug)]
pub struct OpenConnections {
    most: usize,
    members: HashMap<Id, Member>,
}

#[derive(Debug)]
struct Member {
    progress: Arc<Progress>,
    task: AbortHandle,
    reserved: bool,
}

/// The terms under which the next connection is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Only probes are answered on it.
    pub reserved: bool,
    /// Another connection was closed for it.
    pub evicted: bool,
}

impl OpenConnections {
    /// At most `most` connections, and [`RESERVED`] for probes.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), members: HashMap::new() }
    }

    /// Number of open connections.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Makes room for a connection: closes another one if all are taken and one can be spared.
    pub fn admit(&mut self) -> Admission {
        let regular = |member: &Member| !member.reserved;
        let count = self.members.values().filter(|member| regular(member)).count();
        if count < self.most {
            return Admission { reserved: false, evicted: false };
        }
        let evicted = self.evict(regular);
        if evicted {
            return Admission { reserved: false, evicted };
        }
        let reserved = self.members.len() - count;
        let evicted = reserved >= RESERVED && self.evict_oldest(|member| member.reserved, |_| true);
        Admission { reserved: true, evicted }
    }

    /// Closes the connection that can best be spared, if any.
    pub fn spare(&mut self) -> bool {
        self.evict(|_| true)
    }

    /// Adds a connection.
    pub fn add(&mut self, task: AbortHandle, progress: Arc<Progress>, reserved: bool) {
        let member = Member { progress, task, reserved };
        self.members.insert(member.task.id(), member);
    }

    /// Removes a connection that has ended.
    pub fn remove(&mut self, id: Id) {
        self.members.remove(&id);
    }

    /// Closes the connection that has been idle for longest; without one, that whose request has
    /// been incomplete for longest.
    fn evict(&mut self, among: impl Fn(&Member) -> bool + Copy) -> bool {
        self.evict_oldest(among, |(stage, _)| stage == Stage::Idle)
            || self.evict_oldest(among, |(stage, age)| {
                stage == Stage::Receiving && age >= INCOMPLETE_TIMEOUT
            })
    }

    fn evict_oldest(
        &mut self,
        among: impl Fn(&Member) -> bool,
        spare: impl Fn((Stage, Duration)) -> bool,
    ) -> bool {
        let candidates = self.members.iter().filter_map(|(id, member)| {
            let (stage, age) = member.progress.stage();
            (among(member) && spare((stage, age))).then_some((age, *id))
        });
        let Some((_, id)) = candidates.max_by_key(|(age, _)| *age) else {
            return false;
        };
        if let Some(member) = self.members.remove(&id) {
            member.task.abort();
        }
        true
    }
}
