//! The running sequences of each client, and the rows that it has had.

use std::collections::BTreeMap;

use decode::{as_count, as_index};

use super::StepSizes;
use super::turns::ForwardClass;
use crate::request::ClientId;

/// Steps after its last submission in which a client counts as present.
const PRESENCE_STEPS: u64 = 1000;

/// Divides all pages: this fraction is kept from a client that has a sequence running, also while it is
/// alone, so that the next client finds them.
const RESERVED_PAGES_DIVISOR: u32 = 8;

/// Divides the row budget: the most rows that a client may have in a step while clients share the engine.
const MAX_ROWS_DIVISOR: usize = 4;

/// Divides the row budget: the least value of that limit beside a client that has all the rows it wants.
/// Below the ridge of a machine such rows cost the other client nothing.
const MIN_ROWS_DIVISOR: usize = 32;

/// The clients whose sequences run.
#[derive(Debug)]
pub(super) struct Clients {
    accounts: BTreeMap<ClientId, Account>,
    sizes: StepSizes,
    /// Sequences of a step, at most.
    max_running: usize,
    /// True if the limits of rows hold in the step that is being planned.
    is_shared: bool,
    /// The most that a client has had, by [`ForwardClass`].
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
    /// Rows that it may have in that step, if clients share the engine.
    allowed: usize,
    /// Rows beyond its limits in earlier steps, which count as rows of this one.
    debt: usize,
    /// Rows that it has had, by [`ForwardClass`].
    had: [u64; 2],
    /// One of its forwards had no room in the last step, by [`ForwardClass`].
    behind: [bool; 2],
}

impl Clients {
    pub(super) fn new(sizes: StepSizes) -> Self {
        Self {
            accounts: BTreeMap::new(),
            sizes,
            max_running: as_index(sizes.max_running.max(1)),
            is_shared: false,
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

    /// Returns true if `client` may start a sequence of `pages` pages while `running` sequences run.
    pub(super) fn may_start(&self, client: ClientId, pages: u32, running: usize) -> bool {
        let own = self.accounts.get(&client).copied().unwrap_or_default();
        let present = self.accounts.len() + usize::from(own.running == 0);
        let even = (self.max_running / present).max(1);
        let most = self.max_running + self.max_running.div_ceil(2);
        let has_room = running < self.max_running || own.running < even && running < most;
        let most_pages = self.sizes.pages - self.sizes.pages / RESERVED_PAGES_DIVISOR;
        has_room && (own.running == 0 || own.pages + pages <= most_pages)
    }

    /// Returns true if another client is there or was a while ago.
    fn has_company(&self, client: ClientId, now: u64) -> bool {
        let visits = [self.last, self.before].into_iter().flatten();
        let mut others = visits.filter(|visit| visit.client != client);
        let runs = self.accounts.keys().any(|other| *other != client);
        runs || others.any(|visit| now - visit.step < PRESENCE_STEPS)
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

    /// Step `now` begins. A client that had all that it wanted in the last one saves nothing up and
    /// owes nothing.
    pub(super) fn begin_step(&mut self, now: u64) {
        let first = self.accounts.keys().next();
        let is_shared = first.is_some_and(|client| self.has_company(*client, now));
        let had_limits = std::mem::replace(&mut self.is_shared, is_shared);
        let served = self.served();
        let rows = as_index(self.sizes.row_budget);
        let (least, most) = (rows.div_ceil(MIN_ROWS_DIVISOR), rows.div_ceil(MAX_ROWS_DIVISOR));
        for (client, account) in &mut self.accounts {
            let beside = served.iter().flatten().find(|other| other.0 != *client);
            account.settle(had_limits);
            account.allowed = beside.map_or(most, |(_, rows)| (*rows).clamp(least, most));
            for (class, behind) in account.behind.iter_mut().enumerate() {
                if !std::mem::take(behind) {
                    account.had[class] = self.most[class];
                }
            }
        }
    }

    /// The two clients with the most rows among the clients whose forwards all ran in the last step.
    fn served(&self) -> [Option<(ClientId, usize)>; 2] {
        let mut found = [None; 2];
        for (client, account) in &self.accounts {
            if account.in_step == 0 || account.behind.contains(&true) {
                continue;
            }
            let has_more =
                |other: Option<(_, usize)>| other.is_none_or(|(_, rows)| account.in_step > rows);
            if has_more(found[0]) {
                found = [Some((*client, account.in_step)), found[0]];
            } else if has_more(found[1]) {
                found[1] = Some((*client, account.in_step));
            }
        }
        found
    }

    /// Returns true if a client may have `rows` more rows in this step. Its first forward runs whatever its
    /// rows, unless it owes some.
    pub(super) fn may_have(&self, client: ClientId, rows: usize) -> bool {
        let account = self.accounts.get(&client).copied().unwrap_or_default();
        let counted = account.debt + account.in_step;
        !self.is_shared || counted == 0 || counted + rows <= account.allowed
    }

    /// Lifts the limits of rows for the rest of this step; false if none hold.
    pub(super) fn lift_limits(&mut self) -> bool {
        std::mem::take(&mut self.is_shared)
    }

    /// Rows that a client has had.
    pub(super) fn had(&self, client: ClientId, class: ForwardClass) -> u64 {
        let account = self.accounts.get(&client);
        account.map_or(0, |account| account.had[class.index()])
    }

    /// A forward of the client runs; the rows that it has had now.
    pub(super) fn charge(&mut self, client: ClientId, class: ForwardClass, rows: usize) -> u64 {
        let Some(account) = self.accounts.get_mut(&client) else {
            return 0;
        };
        account.in_step += rows;
        let had = &mut account.had[class.index()];
        *had += u64::from(as_count(rows));
        let most = &mut self.most[class.index()];
        *most = (*most).max(*had);
        *had
    }

    /// A forward of the client has no room in this step.
    pub(super) fn passed_over(&mut self, client: ClientId, class: ForwardClass) {
        if let Some(account) = self.accounts.get_mut(&client) {
            account.behind[class.index()] = true;
        }
    }
}

impl Account {
    /// Ends a step: what the client had beyond its limit is owed, as long as it waits for more.
    fn settle(&mut self, had_limits: bool) {
        let owes = had_limits && self.behind.contains(&true);
        let counted = self.debt + std::mem::take(&mut self.in_step);
        self.debt = match owes {
            true => counted.saturating_sub(self.allowed),
            false => 0,
        };
    }
}
