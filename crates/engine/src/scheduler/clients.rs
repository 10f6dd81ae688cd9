//! What each client has of the running set, and the rows that it has had.

use std::collections::BTreeMap;

use decode::as_count;

use super::Share;
use crate::request::ClientId;

/// Steps after which a client that has left does not count any more.
const MEMORY: u64 = 1000;

/// Pages that are kept from a client which has a sequence running, as a share of all pages: one in
/// so many. Only while another client is there, or was [`MEMORY`] steps ago.
const RESERVE: u32 = 8;

/// The clients whose sequences run.
#[derive(Debug)]
pub(super) struct Clients {
    accounts: BTreeMap<ClientId, Account>,
    /// Sequences of a step, at most.
    places: usize,
    pages: u32,
    /// The most that a client has had, by [`Share`].
    most: [u64; 2],
    /// The last client that submitted, and the last other one before it, with their steps.
    last: Option<Visit>,
    before: Option<Visit>,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    client: ClientId,
    step: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Sequences that run.
    running: usize,
    /// Pages promised to them.
    pages: u32,
    /// Rows that it has had, by [`Share`].
    had: [u64; 2],
    /// One of its forwards had no room in the last step, by [`Share`].
    behind: [bool; 2],
}

impl Clients {
    pub(super) fn new(places: usize, pages: u32) -> Self {
        Self {
            accounts: BTreeMap::new(),
            places,
            pages,
            most: [0; 2],
            last: None,
            before: None,
        }
    }

    /// A client submits a sequence in `step`.
    pub(super) fn visit(&mut self, client: ClientId, step: u64) {
        if self.last.is_some_and(|last| last.client != client) {
            self.before = self.last;
        }
        self.last = Some(Visit { client, step });
    }

    /// Whether `client` may start a sequence of so many pages while `running` sequences run.
    pub(super) fn may_start(&self, client: ClientId, pages: u32, running: usize, now: u64) -> bool {
        let own = self.accounts.get(&client).copied().unwrap_or_default();
        let present = self.accounts.len() + usize::from(own.running == 0);
        let even = (self.places / present).max(1);
        let most = self.places + self.places.div_ceil(2);
        let has_place = running < self.places || own.running < even && running < most;
        let kept = match self.has_company(client, now) {
            true => self.pages / RESERVE,
            false => 0,
        };
        has_place && (own.running == 0 || own.pages + pages <= self.pages - kept)
    }

    /// Whether another client is there or was a while ago.
    fn has_company(&self, client: ClientId, now: u64) -> bool {
        let visits = [self.last, self.before].into_iter().flatten();
        let mut others = visits.filter(|visit| visit.client != client);
        let runs = self.accounts.keys().any(|other| *other != client);
        runs || others.any(|visit| now - visit.step < MEMORY)
    }

    /// A sequence starts.
    pub(super) fn start(&mut self, client: ClientId, pages: u32) {
        let account = self.accounts.entry(client).or_default();
        account.running += 1;
        account.pages += pages;
    }

    /// A sequence ends.
    pub(super) fn end(&mut self, client: ClientId, pages: u32) {
        if let Some(account) = self.accounts.get_mut(&client) {
            account.running -= 1;
            account.pages -= pages;
            if account.running == 0 {
                self.accounts.remove(&client);
            }
        }
    }

    /// A step begins: a client that had all that it wanted in the last one saves nothing up.
    pub(super) fn begin_step(&mut self) {
        for account in self.accounts.values_mut() {
            for (share, behind) in account.behind.iter_mut().enumerate() {
                if !std::mem::take(behind) {
                    account.had[share] = self.most[share];
                }
            }
        }
    }

    /// Rows that a client has had.
    pub(super) fn had(&self, client: ClientId, share: Share) -> u64 {
        let account = self.accounts.get(&client);
        account.map_or(0, |account| account.had[share.index()])
    }

    /// A forward of the client runs; the rows that it has had now.
    pub(super) fn charge(&mut self, client: ClientId, share: Share, rows: usize) -> u64 {
        let Some(account) = self.accounts.get_mut(&client) else {
            return 0;
        };
        let had = &mut account.had[share.index()];
        *had += u64::from(as_count(rows));
        let most = &mut self.most[share.index()];
        *most = (*most).max(*had);
        *had
    }

    /// A forward of the client has no room in this step.
    pub(super) fn passed_over(&mut self, client: ClientId, share: Share) {
        if let Some(account) = self.accounts.get_mut(&client) {
            account.behind[share.index()] = true;
        }
    }
}
