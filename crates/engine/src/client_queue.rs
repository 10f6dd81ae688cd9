//! Work of clients that take turns.

use std::collections::{BTreeMap, VecDeque};

use crate::request::ClientId;

/// Jobs in turns of clients; those of one client are in order.
#[derive(Debug)]
pub struct ClientQueue<T> {
    /// No list is empty.
    by_client: BTreeMap<ClientId, VecDeque<T>>,
    /// The clients with jobs; the first one is next.
    turns: VecDeque<ClientId>,
}

impl<T> Default for ClientQueue<T> {
    fn default() -> Self {
        Self { by_client: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<T> ClientQueue<T> {
    /// Adds a job behind the others of `client`.
    pub fn push(&mut self, client: ClientId, job: T) {
        let jobs = self.by_client.entry(client).or_default();
        if jobs.is_empty() {
            self.turns.push_back(client);
        }
        jobs.push_back(job);
    }

    /// The oldest job of the client whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let client = self.turns.pop_front()?;
        let jobs = self.by_client.get_mut(&client)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.by_client.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        job
    }

    /// Jobs of all clients.
    pub fn len(&self) -> usize {
        self.by_client.values().map(VecDeque::len).sum()
    }

    /// Returns true if no client has a job.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Drops jobs; their number.
    pub fn remove(&mut self, drops: impl Fn(&T) -> bool) -> usize {
        let mut dropped = 0;
        for jobs in self.by_client.values_mut() {
            let before = jobs.len();
            jobs.retain(|job| !drops(job));
            dropped += before - jobs.len();
        }
        self.by_client.retain(|_, jobs| !jobs.is_empty());
        let by_client = &self.by_client;
        self.turns.retain(|client| by_client.contains_key(client));
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(jobs: &[(u64, &'static str)]) -> ClientQueue<&'static str> {
        let mut queue = ClientQueue::default();
        for (client, job) in jobs {
            queue.push(ClientId(*client), *job);
        }
        queue
    }

    fn drain(mut queue: ClientQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn clients_take_turns_and_keep_their_order() {
        let queue = queue(&[(7, "a"), (7, "b"), (7, "c"), (1, "x"), (9, "p"), (1, "y")]);
        assert_eq!(drain(queue), ["a", "x", "p", "b", "y", "c"]);
    }

    #[test]
    fn a_client_that_comes_later_waits_for_one_job_of_each_other() {
        let mut queue = queue(&[(1, "a"), (1, "b"), (1, "c"), (2, "p"), (2, "q")]);
        assert_eq!(queue.pop(), Some("a"));
        queue.push(ClientId(3), "x");
        assert_eq!(drain(queue), ["p", "b", "x", "q", "c"]);
    }

    #[test]
    fn dropped_jobs_take_no_turn() {
        let mut queue = queue(&[(1, "a"), (2, "b"), (2, "c"), (3, "d")]);
        assert_eq!(queue.remove(|job| ["b", "c", "d"].contains(job)), 3);
        assert_eq!(drain(queue), ["a"]);
    }
}
