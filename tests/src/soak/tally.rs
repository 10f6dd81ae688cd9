//! Counts of the soak's clients, compared with the server's metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::ask::{Ask, GENERATING, Kind};
use super::visit::End;
use crate::scrape::Scrape;

/// Most tokens of one request: sequences times tokens, as the server is started.
pub const REQUEST_TOKENS: u64 = 768;

/// Counts over all requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Answers by kind, and by status and code; clients that left have status 0.
    ends: BTreeMap<(Kind, u16, String), u64>,
    /// Requests that the metrics count.
    counted: u64,
    /// Numbers of requests that were answered, refused, rejected and left.
    answered: u64,
    invalid: u64,
    rejected: u64,
    left: u64,
    /// Answered ones that stated no usage.
    silent: u64,
    prompt_tokens: u64,
    tokens: u64,
    /// The decoders of valid requests that were answered.
    decoders: BTreeSet<Vec<&'static str>>,
}

impl Tally {
    /// Counts a request. Panics if it may not end so.
    pub fn add(&mut self, ask: &Ask, end: &End) {
        let (status, code) = match end {
            End::Left => (0, "left"),
            End::Answered(_) => (200, ""),
            End::Refused(status, code) => (*status, code.as_str()),
        };
        check(ask, status);
        *self
            .ends
            .entry((ask.kind, status, code.to_owned()))
            .or_default() += 1;
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
                match usage {
                    Some((prompt, completion)) => {
                        self.prompt_tokens += prompt;
                        self.tokens += completion;
                    }
                    None => self.silent += 1,
                }
                if ask.kind == Kind::Valid {
                    self.decoders.insert(ask.decoder.clone());
                }
            }
        }
    }

    /// Adds the counts of another client.
    pub fn merge(&mut self, other: Self) {
        for (end, count) in other.ends {
            *self.ends.entry(end).or_default() += count;
        }
        self.counted += other.counted;
        self.answered += other.answered;
        self.invalid += other.invalid;
        self.rejected += other.rejected;
        self.left += other.left;
        self.silent += other.silent;
        self.prompt_tokens += other.prompt_tokens;
        self.tokens += other.tokens;
        self.decoders.extend(other.decoders);
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.ends.values().sum()
    }

    /// The decoders that answered a request.
    pub fn decoders(&self) -> &BTreeSet<Vec<&'static str>> {
        &self.decoders
    }

    /// Requests of this kind that were answered, and all that did not leave.
    pub fn answered(&self, kind: Kind) -> (u64, u64) {
        let of = |wanted: &dyn Fn(u16) -> bool| {
            let ends = self
                .ends
                .iter()
                .filter(|((of, status, _), _)| *of == kind && wanted(*status));
            ends.map(|(_, count)| count).sum()
        };
        (of(&|status| status == 200), of(&|status| status > 0))
    }

    /// Checks the server's counters. A request whose client left may have ended in any way.
    pub fn check(&self, metrics: &Scrape) {
        let outcome = |name| {
            let of = |path| {
                let labels = [("endpoint", path), ("outcome", name)];
                metrics.sum("asynclane_requests_total", &labels) as u64
            };
            GENERATING.into_iter().map(of).sum::<u64>()
        };
        let [ok, invalid, rejected, cancelled, failed] =
            ["ok", "invalid", "rejected", "cancelled", "failed"].map(outcome);
        println!(
            "server: {ok} ok, {invalid} invalid, {rejected} rejected, {cancelled} cancelled, \
             {failed} failed"
        );
        assert_eq!(failed, 0, "failed requests");
        assert_eq!(
            ok + invalid + rejected + cancelled,
            self.counted,
            "requests"
        );
        let of_left = [
            ("answered", ok, self.answered),
            ("invalid", invalid, self.invalid),
            ("rejected", rejected, self.rejected),
        ]
        .map(|(name, server, clients)| {
            let more = server.checked_sub(clients);
            more.unwrap_or_else(|| panic!("{name}: {server}, the clients saw {clients}"))
        });
        assert_eq!(
            of_left.iter().sum::<u64>() + cancelled,
            self.left,
            "clients that left"
        );
        // Tokens that no client counted belong to answers that no client saw to their end.
        let unseen = (of_left[0] + self.silent) * REQUEST_TOKENS;
        for (name, seen) in [
            ("asynclane_prompt_tokens_total", self.prompt_tokens),
            ("asynclane_generation_tokens_total", self.tokens),
        ] {
            let server = metrics.sum(name, &[]) as u64;
            println!("{name}: {server}, of which the clients counted {seen}");
            assert!(
                (seen..=seen + unseen).contains(&server),
                "{name}: {server}, {seen} seen"
            );
        }
        assert_eq!(
            metrics.sum("asynclane_request_success_total", &[]) as u64,
            ok
        );
    }
}

/// The statuses that a request of a kind may have.
fn check(ask: &Ask, status: u16) {
    let fits = match ask.kind {
        _ if status == 0 => true,
        Kind::Valid | Kind::Hostile => matches!(status, 200 | 400 | 429),
        Kind::Malformed => matches!(status, 200 | 400 | 404 | 429),
        Kind::Range => matches!(status, 200 | 400 | 404 | 429),
        Kind::Other => matches!(status, 200 | 400),
        Kind::Stranger => matches!(status, 401 | 404 | 405),
    };
    assert!(fits, "status {status} for {ask:?}");
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        let mut kinds: Vec<Kind> = self.ends.keys().map(|(kind, ..)| *kind).collect();
        kinds.dedup();
        for kind in kinds {
            let of = self.ends.iter().filter(|((of, ..), _)| *of == kind);
            let of = of.map(|((_, status, code), count)| match status {
                0 => format!("{count} left"),
                200 if code.is_empty() => format!("{count} answered"),
                _ => format!("{count} {status} {code}"),
            });
            let of: Vec<String> = of.collect();
            writeln!(text, "{kind:?}: {}", of.join(", "))?;
        }
        formatter.write_str(text.trim_end())
    }
}
