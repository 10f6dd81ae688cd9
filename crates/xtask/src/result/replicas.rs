//! The result files of `asynclane-lab replicas`.

use serde::Deserialize;

/// Conversations over simulated replicas, by routing policy.
#[derive(Debug, Deserialize)]
pub struct Routing {
    /// The command.
    pub command: String,
    /// The simulated device and its model.
    pub machine: String,
    /// Users per replica.
    pub users: u64,
    /// System prompts.
    pub systems: u64,
    /// Tokens of a system prompt.
    pub system_tokens: u64,
    /// Turns of a conversation.
    pub turns: u64,
    /// Tokens of an answer.
    pub answer_tokens: u64,
    /// Simulated seconds that are counted.
    pub seconds: u64,
    /// A row per number of replicas and policy.
    pub routing: Vec<RoutingRow>,
}

/// One number of replicas under one policy.
#[derive(Debug, Deserialize)]
pub struct RoutingRow {
    /// Replicas.
    pub replicas: u64,
    /// How requests are routed.
    pub policy: String,
    /// Share of the prompt tokens whose K/V were cached.
    pub hit_rate: f64,
    /// Output tokens per second of all replicas.
    pub tokens_per_second: f64,
    /// Their number divided by that of the first row.
    pub over_one: f64,
    /// Rows computed per output token.
    pub positions_per_token: f64,
    /// Seconds to the first token: 50th, 95th and 99th percentile.
    pub ttft: [f64; 3],
    /// Most requests that a replica answered, divided by the mean of all.
    pub imbalance: f64,
}

/// A simulated day under the rules of an autoscaler.
#[derive(Debug, Deserialize)]
pub struct Day {
    /// The command.
    pub command: String,
    /// The simulated device and its model.
    pub machine: String,
    /// Hours.
    pub hours: u64,
    /// Requests per second at the busiest hour.
    pub peak: f64,
    /// Requests of the whole trace.
    pub requests: u64,
    /// Mean tokens of a prompt.
    pub prompt_tokens: u64,
    /// Tokens of an answer.
    pub answer_tokens: u64,
    /// Seconds until a new replica answers.
    pub start_seconds: u64,
    /// Fewest and most replicas.
    pub bounds: [u64; 2],
    /// Target of the guard: mean fill of a step.
    pub step_fill: f64,
    /// From how many seconds on a first token is late.
    pub late_seconds: u64,
    /// A row per setting.
    pub day: Vec<DayRow>,
}

/// What one setting did.
#[derive(Debug, Deserialize)]
pub struct DayRow {
    /// What the operator set.
    pub setting: String,
    /// Hours of all replicas together.
    pub replica_hours: f64,
    /// Most replicas at a time.
    pub most: u64,
    /// Replicas that were added and removed.
    pub changes: [u64; 2],
    /// Seconds to the first token: 50th, 95th and 99th percentile.
    pub ttft: [f64; 3],
    /// Answers whose first token was late, in percent.
    pub late: f64,
    /// Requests that were refused, in percent.
    pub refused: f64,
}
