//! How a router chooses a replica.

use std::collections::HashSet;

use decode::TokenId;

use super::replica::PAGE;
use crate::args::Policy;

/// Smallest share of a prompt that a replica must have seen to be chosen for it. This and the next two
/// are the defaults of the Shepherd Model Gateway's policy `cache_aware`.
const SEEN: f64 = 0.3;
/// Difference in requests in flight, and their ratio, beyond which load decides.
const FAR: (usize, f64) = (64, 1.5);

/// A router over a number of replicas that does not change.
pub struct Router {
    policy: Policy,
    /// Requests so far.
    turn: usize,
    /// By replica: the beginnings of prompts sent to it, by whole pages.
    seen: Vec<HashSet<u64>>,
}

impl Router {
    /// A router that has sent nothing.
    pub fn new(policy: Policy, replicas: usize) -> Self {
        Self {
            policy,
            turn: 0,
            seen: vec![HashSet::new(); replicas],
        }
    }

    /// The replica for a prompt; `loads` are the requests in flight of each.
    pub fn choose(&mut self, prompt: &[TokenId], loads: &[usize]) -> usize {
        let turn = self.turn;
        self.turn += 1;
        match self.policy {
            Policy::RoundRobin => turn % loads.len(),
            Policy::LeastLoad => least(loads, turn),
            Policy::PrefixAware => {
                let begins = beginnings(prompt);
                let chosen = self.aware(&begins, loads, turn);
                self.seen[chosen].extend(begins);
                chosen
            }
        }
    }

    fn aware(&self, begins: &[u64], loads: &[usize], turn: usize) -> usize {
        let (low, high) = (loads.iter().min(), loads.iter().max());
        let (low, high) = (*low.unwrap_or(&0), *high.unwrap_or(&0));
        if high - low > FAR.0 && high as f64 > FAR.1 * low as f64 {
            return least(loads, turn);
        }
        let known = |seen: &HashSet<u64>| begins.iter().take_while(|of| seen.contains(of)).count();
        let matched: Vec<usize> = self.seen.iter().map(known).collect();
        let most = matched.iter().max().copied().unwrap_or(0);
        if most as f64 > SEEN * begins.len() as f64 {
            let busy: Vec<usize> = (0..loads.len())
                .map(|at| {
                    if matched[at] == most {
                        loads[at]
                    } else {
                        usize::MAX
                    }
                })
                .collect();
            return least(&busy, turn);
        }
        let sizes: Vec<usize> = self.seen.iter().map(HashSet::len).collect();
        least(&sizes, turn)
    }
}

/// The replica with the smallest number, of equal ones in turn.
pub fn least(of: &[usize], turn: usize) -> usize {
    let count = of.len();
    let order = (0..count).map(|at| (turn + at) % count);
    order.min_by_key(|at| of[*at]).unwrap_or(0)
}

/// A hash of each beginning of a prompt that is whole pages long, shortest first.
fn beginnings(prompt: &[TokenId]) -> Vec<u64> {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut all = Vec::with_capacity(prompt.len() / PAGE as usize);
    for page in prompt.chunks_exact(PAGE as usize) {
        for token in page {
            hash = (hash ^ u64::from(*token)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        all.push(hash);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(begin: u32, end: u32) -> Vec<TokenId> {
        let begins = (0..64).map(|at| begin + at % 7);
        begins.chain((0..32).map(|at| end + at % 5)).collect()
    }

    #[test]
    fn turns_and_loads_decide_without_the_prompt() {
        let mut turns = Router::new(Policy::RoundRobin, 3);
        let chosen: Vec<usize> = (0..4).map(|_| turns.choose(&[], &[9, 0, 0])).collect();
        assert_eq!(chosen, [0, 1, 2, 0]);
        let mut load = Router::new(Policy::LeastLoad, 3);
        let chosen: Vec<usize> = (0..3).map(|_| load.choose(&[], &[9, 1, 1])).collect();
        assert_eq!(chosen, [1, 1, 2]);
    }

    #[test]
    fn a_prompt_follows_its_beginning_until_the_replica_is_far_busier() {
        let mut router = Router::new(Policy::PrefixAware, 2);
        let first = router.choose(&prompt(10, 500), &[0, 0]);
        let other = router.choose(&prompt(20, 600), &[0, 0]);
        assert_ne!(first, other);
        let mut loads = [0, 0];
        loads[first] = 60;
        assert_eq!(router.choose(&prompt(10, 700), &loads), first);
        loads[first] = 65;
        assert_eq!(router.choose(&prompt(10, 800), &loads), other);
        // It has been seen by both now.
        loads[first] = 60;
        assert_eq!(router.choose(&prompt(10, 900), &loads), other);
    }
}
