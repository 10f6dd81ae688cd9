//! What each client has of the running set, and the rows that it has had.

use std::collections::BTreeMap;

use decode::{as_count, as_index};

use super::{Share, StepSizes};
use crate::request::ClientId;

/// Steps after which a client that has left does not count any more.
const MEMORY: u64 = 1000;

/// Pages that are kept from a client which has a sequence running, as a share of all pages: one in
/// so many. Also while it is alone, so that the next client finds them.
const RESERVE: u32 = 8;

/// The rows that a client has in a step while clients share the engine, as a share of the row
/// budget: one in so many. Its first forward runs whatever its rows. So a client with many sequences
/// does not make the steps of others long.
const SHARED_ROWS: usize = 4;

/// The clients whose sequences run.
#[derive(Debug)]
pub(super) struct Clients {
    accounts: BTreeMap<ClientId, Account>,
    sizes: StepSizes,
    /// Sequences of a step, at most.
    places: usize,
    /// The most rows of a client in the step that is being planned; `None` = the row budget.
    most_rows: Option<usize>,
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
    /// Rows that it has in the step that is being planned.
    in_step: usize,
    /// Rows that it has had, by [`Share`].
    had: [u64; 2],
    /// One of its forwards had no room in the last step, by [`Share`].
    behind: [bool; 2],
}

impl Clients {
    pub(super) fn new(sizes: StepSizes) -> Self {
        Self {
            accounts: BTreeMap::new(),
            sizes,
            places: as_index(sizes.max_running.max(1)),
            most_rows: None,
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
    pub(super) fn may_start(&self, client: ClientId, pages: u32, running: usize) -> bool {
        let own = self.accounts.get(&client).copied().unwrap_or_default();
        let present = self.accounts.len() + usize::from(own.running == 0);
        let even = (self.places / present).max(1);
        let most = self.places + self.places.div_ceil(2);
        let has_place = running < self.places || own.running < even && running < most;
        let most_pages = self.sizes.pages - self.sizes.pages / RESERVE;
        has_place && (own.running == 0 || own.pages + pages <= most_pages)
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

    /// Step `now` begins: a client that had all that it wanted in the last one saves nothing up.
    pub(super) fn begin_step(&mut self, now: u64) {
        let first = self.accounts.keys().next();
        let is_shared = first.is_some_and(|client| self.has_company(*client, now));
        let rows = as_index(self.sizes.row_budget);
        self.most_rows = is_shared.then_some(rows / SHARED_ROWS);
        for account in self.accounts.values_mut() {
            account.in_step = 0;
            for (share, behind) in account.behind.iter_mut().enumerate() {
                if !std::mem::take(behind) {
                    account.had[share] = self.most[share];
                }
            }
        }
    }

    /// Whether a client may have so many more rows in this step.
    pub(super) fn may_have(&self, client: ClientId, rows: usize) -> bool {
        let account = self.accounts.get(&client);
        let own = account.map_or(0, |account| account.in_step);
        own == 0 || self.most_rows.is_none_or(|most| own + rows <= most)
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
        account.in_step += rows;
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
