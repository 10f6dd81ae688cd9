//! A day of requests under the rules of the autoscaler.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::fleet::{Fleet, Signals};
use super::replica::Kind;
use super::trace::Trace;
use super::{Waits, round};
use crate::args::DayArgs;
use cli::exit;

use super::autoscaler::{Autoscaler, INTERVAL, desired};

/// A request is late if its first token comes after so long.
const LATE: Duration = Duration::from_secs(5);

/// The result of `replicas day`.
#[derive(Debug, Serialize)]
pub struct Day {
    /// The command.
    pub command: String,
    /// The simulated device and its model.
    pub machine: String,
    /// Hours.
    pub hours: u32,
    /// Requests per second at the busiest hour.
    pub peak: f64,
    /// Requests of the whole trace.
    pub requests: u64,
    /// Mean tokens of a prompt.
    pub prompt_tokens: u32,
    /// Tokens of an answer.
    pub answer_tokens: u32,
    /// Seconds until a new replica answers.
    pub start_seconds: u32,
    /// Fewest and most replicas.
    pub bounds: [u32; 2],
    /// Target of the guard: mean fill of a step.
    pub step_fill: f64,
    /// Seconds of [`LATE`].
    pub late_seconds: u64,
    /// A row per setting.
    pub day: Vec<Row>,
}

/// What one setting did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What the operator set.
    pub setting: String,
    /// Hours of all replicas together, starting ones included.
    pub replica_hours: f64,
    /// Most replicas at a time.
    pub most: u32,
    /// Replicas that were added and removed.
    pub changes: [u32; 2],
    /// Seconds to the first token.
    pub ttft: Waits,
    /// Requests whose first token came late, in percent of those answered.
    pub late: f64,
    /// Requests refused because every queue was full, in percent.
    pub refused: f64,
}

/// What the operator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    /// A number of replicas.
    Fixed(u32),
    /// Running and waiting sequences per replica.
    Load(f64),
    /// Waiting sequences per replica.
    Waiting(f64),
    /// Share of the KV pages per replica.
    Kv(f64),
}

impl Setting {
    fn parse(text: &str) -> Result<Self> {
        let number = |text: &str| {
            text.parse::<f64>()
                .ok()
                .filter(|of| of.is_finite() && *of > 0.0)
        };
        let found = text.split_once(':').and_then(|(name, value)| match name {
            "fixed" => value
                .parse()
                .ok()
                .filter(|of| (1..=64).contains(of))
                .map(Self::Fixed),
            "load" => number(value).map(Self::Load),
            "waiting" => number(value).map(Self::Waiting),
            "kv" => number(value).map(Self::Kv),
            _ => None,
        });
        found.ok_or_else(|| {
            let expected = "fixed:N, load:N, waiting:N or kv:SHARE";
            exit::failure(
                exit::USAGE,
                format!("--settings: expected {expected}, found {text}"),
            )
        })
    }

    /// The number of replicas that its signal asks for.
    fn desired(self, signals: &Signals, current: u32) -> u32 {
        match self {
            Self::Fixed(count) => count,
            Self::Load(target) => desired(signals.running + signals.waiting, target, current),
            Self::Waiting(target) => desired(signals.waiting, target, current),
            Self::Kv(target) => desired(signals.kv, target, current),
        }
    }
}

/// Simulates the day under every setting, each on a thread of its own.
///
/// # Errors
/// Arguments that make no simulation.
pub fn run(args: &DayArgs) -> Result<Day> {
    let settings: Result<Vec<Setting>> =
        args.settings.iter().map(|of| Setting::parse(of)).collect();
    let settings = settings?;
    let trace = Trace::new(args)?;
    if args.min_replicas == 0 || args.min_replicas > args.max_replicas || args.max_replicas > 64 {
        let message =
            "--min-replicas, --max-replicas: expected 1 to 64, the first not above the other";
        return Err(exit::failure(exit::USAGE, message));
    }
    let rows: Result<Vec<Row>> = std::thread::scope(|scope| {
        let run = |(setting, name): (&Setting, &String)| {
            let (setting, name) = (*setting, name.clone());
            let trace = trace.clone();
            scope.spawn(move || one(args, trace, setting, name))
        };
        let threads: Vec<_> = settings.iter().zip(&args.settings).map(run).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|row| row.expect("a simulation does not panic"))
            .collect()
    });
    Ok(Day {
        command: super::command(),
        machine: super::machine(&args.device, &args.engine),
        hours: args.hours,
        peak: args.peak,
        requests: trace.count() as u64,
        prompt_tokens: args.prompt_tokens,
        answer_tokens: args.answer_tokens,
        start_seconds: args.start_seconds,
        bounds: [args.min_replicas, args.max_replicas],
        step_fill: args.step_fill,
        late_seconds: LATE.as_secs(),
        day: rows?,
    })
}

fn one(args: &DayArgs, mut trace: Trace, setting: Setting, name: String) -> Result<Row> {
    let kind = Kind::new(&args.device, &args.engine)?;
    let start = Duration::from_secs(args.start_seconds.into());
    let first = match setting {
        Setting::Fixed(count) => count,
        _ => args.min_replicas,
    };
    let mut fleet = Fleet::new(kind, first, args.engine.row_budget)?;
    let mut scaler = Autoscaler::new(args.min_replicas, args.max_replicas);
    let mut tick = INTERVAL;
    let mut refused = 0_u64;
    let mut changes = [0, 0];
    let mut most = first;
    let mut arrival = trace.next_arrival();
    loop {
        let next = [
            arrival.as_ref().map(|of| of.at),
            fleet.next_end(),
            Some(tick),
        ];
        let now = next.into_iter().flatten().min().expect("there is a tick");
        if arrival.is_none() && fleet.in_flight() == 0 {
            break;
        }
        if now == tick {
            if !matches!(setting, Setting::Fixed(_)) {
                let current = fleet.size();
                let signals = fleet.signals();
                let guard = desired(signals.fill, args.step_fill, current);
                let wanted = setting.desired(&signals, current).max(guard);
                let decided = scaler.decide(now, current, wanted);
                changes[0] += decided.saturating_sub(current);
                changes[1] += current.saturating_sub(decided);
                fleet.resize(decided, now, start)?;
                most = most.max(decided);
            }
            fleet.scrape(now);
            tick += INTERVAL;
        } else if let Some(request) = arrival.take_if(|of| of.at == now) {
            refused += u64::from(!fleet.submit(&request, now)?);
            arrival = trace.next_arrival();
        } else {
            fleet.end(now)?;
        }
    }
    let (hours, firsts) = fleet.close();
    let answered = firsts.len() as f64;
    let late = firsts.iter().filter(|first| **first > LATE).count() as f64;
    Ok(Row {
        setting: name,
        replica_hours: round(hours, 1),
        most,
        changes,
        ttft: Waits::of(firsts.into_iter()),
        late: round(100.0 * late / answered, 2),
        refused: round(100.0 * refused as f64 / (answered + refused as f64), 2),
    })
}
