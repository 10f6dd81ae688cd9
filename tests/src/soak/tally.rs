//! Counts of the soak's clients, compared with the server's metrics.

use std::collections::BTreeSet;

use super::ask::{Ask, GENERATING, Kind};
use super::visit::End;
use crate::scrape::Scrape;

/// Most tokens of one request: sequences times tokens, as the server is started.
pub const REQUEST_TOKENS: u64 = 768;

/// Counts over all requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// All requests.
    pub total: u64,
    /// Requests that the metrics count, and of them those answered, refused, rejected and left.
    counted: u64,
    answered: u64,
    invalid: u64,
    rejected: u64,
    left: u64,
    /// Answered ones that stated no usage.
    silent: u64,
    prompt_tokens: u64,
    tokens: u64,
    /// Valid requests that were answered, and all that did not leave.
    pub valid: (u64, u64),
    /// The decoders of valid requests that were answered.
    pub decoders: BTreeSet<Vec<&'static str>>,
}

impl Tally {
    /// Counts a request. Panics if it may not end so.
    pub fn add(&mut self, ask: &Ask, end: &End) {
        check(ask, end);
        self.total += 1;
        if ask.kind == Kind::Valid {
            self.valid.0 += u64::from(matches!(end, End::Answered(_) | End::Refused(200, _)));
            self.valid.1 += u64::from(*end != End::Left);
        }
        if !ask.is_counted() {
            return;
        }
        self.counted += 1;
        match end {
            End::Left => self.left += 1,
            End::Refused(429, _) => self.rejected += 1,
            End::Refused(..) => self.invalid += 1,
            End::Answered(usage) => {
                self.answered += 1;
                self.silent += u64::from(usage.is_none());
                let (prompt, completion) = usage.unwrap_or_default();
                self.prompt_tokens += prompt;
                self.tokens += completion;
                if ask.kind == Kind::Valid {
                    self.decoders.insert(ask.decoder.clone());
                }
            }
        }
    }

    /// Adds the counts of another client.
    pub fn merge(&mut self, other: Self) {
        for (count, more) in [
            (&mut self.total, other.total),
            (&mut self.counted, other.counted),
            (&mut self.answered, other.answered),
            (&mut self.invalid, other.invalid),
            (&mut self.rejected, other.rejected),
            (&mut self.left, other.left),
            (&mut self.silent, other.silent),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.tokens, other.tokens),
            (&mut self.valid.0, other.valid.0),
            (&mut self.valid.1, other.valid.1),
        ] {
            *count += more;
        }
        self.decoders.extend(other.decoders);
    }
    /// Checks the server's counters. A request whose client left may have ended in any way.
    pub fn check(&self, metrics: &Scrape) {
        let outcome = |name| {
            let count = |path| {
                let labels = [("endpoint", path), ("outcome", name)];
                metrics.sum("asynclane_requests_total", &labels) as u64
            };
            GENERATING.into_iter().map(count).sum::<u64>()
        };
        let [ok, invalid, rejected, cancelled, failed] =
            ["ok", "invalid", "rejected", "cancelled", "failed"].map(outcome);
        assert_eq!(failed, 0, "failed requests");
        let all = ok + invalid + rejected + cancelled;
        assert_eq!(all, self.counted, "requests");
        let of_left = [
            ("answered", ok, self.answered),
            ("invalid", invalid, self.invalid),
            ("rejected", rejected, self.rejected),
        ]
        .map(|(name, server, clients)| {
            let more = server.checked_sub(clients);
            more.unwrap_or_else(|| panic!("{name}: {server}, the clients saw {clients}"))
        });
        let left = of_left.iter().sum::<u64>() + cancelled;
        assert_eq!(left, self.left, "clients that left");
        // Tokens that no client counted belong to answers that no client saw to their end.
        let unseen = (left + self.silent) * REQUEST_TOKENS;
        for (name, seen) in [
            ("asynclane_prompt_tokens_total", self.prompt_tokens),
            ("asynclane_generation_tokens_total", self.tokens),
        ] {
            let server = metrics.sum(name, &[]) as u64;
            let fits = (seen..=seen + unseen).contains(&server);
            assert!(fits, "{name}: {server}, {seen} seen");
        }
        let succeeded = metrics.sum("asynclane_request_success_total", &[]);
        assert_eq!(succeeded as u64, ok);
    }
}

/// The statuses that a request of a kind may have.
fn check(ask: &Ask, end: &End) {
    let status = match end {
        End::Left => return,
        End::Answered(_) => 200,
        End::Refused(status, _) => *status,
    };
    let fits = match ask.kind {
        Kind::Valid | Kind::Hostile => matches!(status, 200 | 400 | 429),
        Kind::Malformed | Kind::Range => matches!(status, 200 | 400 | 404 | 429),
        Kind::Other => matches!(status, 200 | 400),
        Kind::Stranger => matches!(status, 401 | 404 | 405),
    };
    assert!(fits, "status {status} for {ask:?}");
}
