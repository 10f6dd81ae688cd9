//! Conversations over several replicas, by routing policy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use decode::TokenId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp};
use serde::Serialize;

use super::replica::{Done, Kind, Replica, VOCAB};
use super::router::Router;
use super::{Waits, round};
use crate::args::{Policy, RoutingArgs};
use cli::exit;

/// The result of `replicas routing`.
#[derive(Debug, Serialize)]
pub struct Routing {
    /// The command.
    pub command: String,
    /// The simulated device and its model.
    pub machine: String,
    /// Users per replica.
    pub users: u32,
    /// System prompts.
    pub systems: u32,
    /// Tokens of a system prompt.
    pub system_tokens: u32,
    /// Turns of a conversation.
    pub turns: u32,
    /// Tokens of an answer.
    pub answer_tokens: u32,
    /// Simulated seconds that are counted.
    pub seconds: u32,
    /// A row per number of replicas and policy.
    pub routing: Vec<Row>,
}

/// One number of replicas under one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Replicas.
    pub replicas: u32,
    /// How requests are routed.
    pub policy: String,
    /// Share of the prompt tokens whose K/V were cached.
    pub hit_rate: f64,
    /// Output tokens per second of all replicas.
    pub tokens_per_second: f64,
    /// Their number divided by that of one replica.
    pub over_one: f64,
    /// Rows computed per output token.
    pub positions_per_token: f64,
    /// Seconds to the first token.
    pub ttft: Waits,
    /// Most requests that a replica answered, divided by the mean of all.
    pub imbalance: f64,
}

/// Simulates every number of replicas under every policy.
///
/// # Errors
/// Arguments that make no simulation.
pub fn run(args: &RoutingArgs) -> Result<Routing> {
    let kind = Kind::new(&args.device, &args.engine)?;
    if !args.think.is_finite() || args.think <= 0.0 || args.seconds == 0 {
        let message = "--think, --seconds: expected positive numbers";
        return Err(exit::failure(exit::USAGE, message));
    }
    let mut rows: Vec<Row> = Vec::new();
    for &replicas in &args.replicas {
        // One replica leaves no choice.
        let policies = match replicas {
            1 => &Policy::value_variants()[..1],
            _ => Policy::value_variants(),
        };
        for &policy in policies {
            let mut row = Simulation::new(args, &kind, (replicas, policy))?.run()?;
            let one = rows.first().unwrap_or(&row).tokens_per_second;
            row.over_one = round(row.tokens_per_second / one, 3);
            rows.push(row);
        }
    }
    Ok(Routing {
        command: super::command(),
        machine: super::machine(&args.device, &args.engine),
        users: args.users,
        systems: args.systems,
        system_tokens: args.system_tokens,
        turns: args.turns,
        answer_tokens: args.answer_tokens,
        seconds: args.seconds,
        routing: rows,
    })
}

/// A user's conversation: all that was said, and how many answers are in it.
#[derive(Clone, Default)]
struct Conversation {
    said: Vec<TokenId>,
    answers: u32,
}

struct Simulation<'a> {
    args: &'a RoutingArgs,
    kind: &'a Kind,
    of: (u32, Policy),
    replicas: Vec<Replica>,
    router: Router,
    systems: Vec<Vec<TokenId>>,
    users: Vec<Conversation>,
    /// Next turns: when, and of which user.
    turns: BinaryHeap<Reverse<(Duration, usize)>>,
    random: StdRng,
    done: Vec<(usize, Done)>,
}

fn tokens(count: u32, random: &mut StdRng) -> Vec<TokenId> {
    (0..count).map(|_| random.random_range(3..VOCAB)).collect()
}

impl<'a> Simulation<'a> {
    fn new(args: &'a RoutingArgs, kind: &'a Kind, of: (u32, Policy)) -> Result<Self> {
        let mut random = StdRng::seed_from_u64(args.seed);
        let count = of.0 as usize;
        let replicas: Result<Vec<Replica>> = (0..count).map(|_| Replica::new(kind)).collect();
        let systems = (0..args.systems).map(|_| tokens(args.system_tokens, &mut random));
        let systems = systems.collect();
        let users = count * args.users as usize;
        let mut simulation = Self {
            args,
            kind,
            of,
            replicas: replicas?,
            router: Router::new(of.1, count),
            systems,
            users: vec![Conversation::default(); users],
            turns: BinaryHeap::new(),
            random,
            done: Vec::new(),
        };
        for user in 0..users {
            simulation.pause(user, Duration::ZERO);
        }
        Ok(simulation)
    }

    /// The user's next turn, after a pause.
    fn pause(&mut self, user: usize, now: Duration) {
        let pauses = Exp::new(1.0 / self.args.think).expect("the mean is checked");
        let pause = Duration::from_secs_f64(pauses.sample(&mut self.random));
        self.turns.push(Reverse((now + pause, user)));
    }

    fn run(mut self) -> Result<Row> {
        let begin = Duration::from_secs(self.args.warm_up.into());
        let end = begin + Duration::from_secs(self.args.seconds.into());
        loop {
            let turn = self.turns.peek().map(|Reverse((at, _))| *at);
            let step = self.replicas.iter().enumerate();
            let step = step.filter_map(|(at, one)| Some((one.until()?, at))).min();
            let next = turn.into_iter().chain(step.map(|(at, _)| at)).min();
            let Some(now) = next.filter(|now| *now < end) else {
                break;
            };
            match step {
                Some((at, replica)) if at == now => self.step(replica)?,
                _ => self.ask(now)?,
            }
        }
        Ok(self.row(begin))
    }

    fn step(&mut self, replica: usize) -> Result<()> {
        for done in self.replicas[replica].end()? {
            let user = &mut self.users[done.request];
            user.said.extend_from_slice(&done.tokens);
            user.answers += 1;
            if user.answers == self.args.turns {
                *user = Conversation::default();
            }
            self.pause(done.request, done.ended);
            self.done.push((replica, done));
        }
        Ok(())
    }

    fn ask(&mut self, now: Duration) -> Result<()> {
        let Some(Reverse((_, user))) = self.turns.pop() else {
            return Ok(());
        };
        let answer = self.args.answer_tokens;
        if self.users[user].said.is_empty() {
            let system = self.random.random_range(0..self.systems.len());
            self.users[user].said.clone_from(&self.systems[system]);
        }
        let length = self.random.random_range(answer / 2..=answer * 2);
        let message = tokens(length, &mut self.random);
        self.users[user].said.extend(message);
        let prompt = self.users[user].said.clone();
        let loads: Vec<usize> = self.replicas.iter().map(Replica::in_flight).collect();
        let chosen = self.router.choose(&prompt, &loads);
        let request = self.kind.request(prompt, answer);
        if self.replicas[chosen].submit(request, user, now)? {
            return Ok(());
        }
        let message = "a replica's queue is full: expected fewer --users or more --max-waiting";
        Err(exit::failure(exit::USAGE, message))
    }

    /// What was answered from `begin` on.
    fn row(&self, begin: Duration) -> Row {
        let counted = || self.done.iter().filter(|(_, done)| done.ended >= begin);
        let sum =
            |of: fn(&Done) -> usize| -> f64 { counted().map(|(_, done)| of(done) as f64).sum() };
        let prompt = sum(|done| done.prompt.0 as usize);
        let output = sum(|done| done.tokens.len());
        let mut answered = vec![0_u32; self.replicas.len()];
        counted().for_each(|(replica, _)| answered[*replica] += 1);
        let most = f64::from(answered.iter().max().copied().unwrap_or(0));
        let mean = counted().count() as f64 / answered.len() as f64;
        // Rows are counted from the start, as are these tokens.
        let rows: u64 = self.replicas.iter().map(|one| one.rows).sum();
        let all: usize = self.done.iter().map(|(_, done)| done.tokens.len()).sum();
        let name = self.of.1.to_possible_value().expect("no policy is hidden");
        Row {
            replicas: self.of.0,
            policy: name.get_name().to_owned(),
            hit_rate: round(sum(|done| done.prompt.1 as usize) / prompt, 3),
            tokens_per_second: round(output / f64::from(self.args.seconds), 1),
            over_one: 1.0,
            positions_per_token: round(rows as f64 / all as f64, 2),
            ttft: Waits::of(counted().map(|(_, done)| done.first)),
            imbalance: round(most / mean, 2),
        }
    }
}
