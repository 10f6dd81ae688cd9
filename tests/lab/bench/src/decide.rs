//! Decisions about held-out problems: accuracy, calibration, and agreement of the manners of reading.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use problems::{Problem, Split, Task, generate};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::DecideArgs;

/// Bins of the expected calibration error.
const BINS: usize = 10;
/// Options of a choice, and levels of a score.
const OPTIONS: u64 = 4;
const LEVELS: u64 = 10;
/// Numbers of a level.
const WIDTH: u64 = 5;

/// The result of one manner of reading.
#[derive(Debug, Serialize)]
pub struct DecideEntry {
    /// `joint` or `apart`.
    pub read: String,
    /// Orders of the options.
    pub orders: u32,
    /// The kind of question.
    pub kind: &'static str,
    /// Right answers, in percent.
    pub accuracy: f64,
    /// Mean distance of confidence and accuracy over ten bins of confidence, in percent.
    pub calibration_error: f64,
    /// Answers that are those of the other manner with as many orders, in percent.
    pub agreement: Option<f64>,
    /// Mean probability of the labels among all tokens.
    pub option_mass: f64,
    /// Forward passes over all problems, of all kinds.
    pub forwards: u64,
}

/// The result of a server.
#[derive(Debug, Serialize)]
pub struct DecideReport {
    /// The served model.
    pub model: String,
    /// Held-out sums, with a question of each kind.
    pub problems: usize,
    /// Seed of the problem generator.
    pub seed: u64,
    /// One entry per manner, number of orders and kind.
    pub decisions: Vec<DecideEntry>,
}

/// The kinds of questions.
const KINDS: [&str; 3] = ["predicate", "choice", "score"];

/// A sum's text, its questions and the right options.
struct Case {
    input: String,
    questions: Value,
    right: [usize; 3],
}

/// One answer: its option, its confidence, and the mass of its labels.
#[derive(Clone, Copy)]
struct Decided {
    option: usize,
    confidence: f64,
    mass: f64,
}

/// Asks the server at `--url`, prints the table and writes the result.
///
/// # Errors
/// A server that does not answer.
pub fn run(args: &DecideArgs) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let report = runtime.block_on(measure(args))?;
    println!("{}", table(&report));
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

async fn measure(args: &DecideArgs) -> Result<DecideReport> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    // Some prompts ask in other words than a last sentence.
    let problems = generate(Task::Sums, Split::Eval, args.seed, 2 * args.problems);
    let cases = (0..).zip(&problems).filter_map(case).take(args.problems);
    let cases: Vec<Case> = cases.collect();
    let models = send(&client, &args.url, "/v1/models", None).await?;
    let model = models["data"][0]["id"].as_str().context("a served model")?.to_owned();
    let mut decisions = Vec::new();
    for &orders in &args.orders {
        let mut found = Vec::new();
        for read in ["joint", "apart"] {
            let (mut all, mut forwards) = (Vec::with_capacity(cases.len()), 0);
            for case in &cases {
                let body = json!({"model": model, "input": case.input, "questions": case.questions,
                    "diffusion": {"read": read, "orders": orders}});
                let answer = send(&client, &args.url, "/v1/decisions", Some(&body)).await?;
                if answer["error"]["param"] == "diffusion.read" {
                    break;
                }
                forwards += answer["usage"]["diffusion"]["forwards"].as_u64().unwrap_or(0);
                all.push(decided(&answer)?);
            }
            if all.len() == cases.len() {
                found.push((read, all, forwards));
            }
        }
        for (index, (read, all, forwards)) in found.iter().enumerate() {
            let other = found.get(1 - index).map(|(_, all, _)| all);
            for (kind, name) in KINDS.into_iter().enumerate() {
                let mut entry = entry(&cases, all, other, kind);
                (entry.read, entry.orders) = ((*read).to_owned(), orders);
                (entry.kind, entry.forwards) = (name, *forwards);
                decisions.push(entry);
            }
        }
    }
    Ok(DecideReport { model, problems: cases.len(), seed: args.seed, decisions })
}

/// The questions about a sum; its number decides what is asked.
fn case((number, problem): (u64, &Problem)) -> Option<Case> {
    let right: u64 = problem.answer.rsplit("#### ").next()?.trim().parse().ok()?;
    let (input, question) = problem.prompt.rsplit_once(". ")?;
    let is_true = number.is_multiple_of(2);
    // Too high and too low alike, so that only the sum tells.
    let miss = 1 + number % 5;
    let said = match (is_true, number / 2 % 2) {
        (true, _) => right,
        (false, 0) if right >= miss => right - miss,
        (false, _) => right + miss,
    };
    // The right value has any rank among the four, and any place.
    let (place, rank) = (number % OPTIONS, (number / OPTIONS % OPTIONS).min(right));
    let lowest = right - rank;
    let values = (0..OPTIONS).map(|index| lowest + (rank + index + OPTIONS - place) % OPTIONS);
    let choices: Vec<Value> = values.map(|value| json!({"value": value.to_string()})).collect();
    let levels = (0..LEVELS).map(|level| {
        let lowest = level * WIDTH;
        json!({"label": format!("{lowest} to {}", lowest + WIDTH - 1)})
    });
    let levels: Vec<Value> = levels.collect();
    Some(Case {
        input: format!("{input}."),
        questions: json!([
            {"type": "predicate", "instructions": format!("{question} It is {said}.")},
            {"type": "choice", "instructions": question, "choices": choices},
            {"type": "score", "instructions": question, "levels": levels},
        ]),
        right: [
            usize::from(!is_true),
            usize::try_from(place).ok()?,
            usize::try_from((right / WIDTH).min(LEVELS - 1)).ok()?,
        ],
    })
}

/// The answers to the three questions.
fn decided(answer: &Value) -> Result<[Decided; 3]> {
    let masses = &answer["usage"]["diffusion"]["option_mass"];
    let one = |kind: usize| -> Result<Decided> {
        let decision = &answer["answers"][kind];
        let probabilities: Vec<f64> = match decision["probability"].as_f64() {
            Some(truth) => vec![truth, 1.0 - truth],
            None => {
                let all = decision["probabilities"].as_array().context("an answer")?.iter();
                all.filter_map(|option| option["probability"].as_f64()).collect()
            }
        };
        let best = |best: usize, index: usize| {
            if probabilities[index] > probabilities[best] { index } else { best }
        };
        let option = (0..probabilities.len()).fold(0, best);
        let mass = masses[kind].as_f64().context("a mass")?;
        Ok(Decided { option, confidence: probabilities[option], mass })
    };
    Ok([one(0)?, one(1)?, one(2)?])
}

fn entry(
    cases: &[Case],
    all: &[[Decided; 3]],
    other: Option<&Vec<[Decided; 3]>>,
    kind: usize,
) -> DecideEntry {
    let count = cases.len().max(1) as f64;
    let percent = |share: f64| (1000.0 * share).round() / 10.0;
    let (mut right, mut mass, mut bins) = (0.0, 0.0, [(0.0, 0.0); BINS]);
    for (case, decided) in cases.iter().zip(all) {
        let decision = decided[kind];
        let is_right = f64::from(u8::from(decision.option == case.right[kind]));
        let bin = &mut bins[((decision.confidence * BINS as f64) as usize).min(BINS - 1)];
        (bin.0, bin.1) = (bin.0 + decision.confidence, bin.1 + is_right);
        right += is_right;
        mass += decision.mass;
    }
    let apart: f64 = bins.iter().map(|(confidence, right)| (confidence - right).abs()).sum();
    let same = |other: &Vec<[Decided; 3]>| {
        let pairs = all.iter().zip(other);
        let same = pairs.filter(|(a, b)| a[kind].option == b[kind].option).count();
        percent(same as f64 / count)
    };
    DecideEntry {
        read: String::new(),
        orders: 0,
        kind: "",
        accuracy: percent(right / count),
        calibration_error: percent(apart / count),
        agreement: other.map(same),
        option_mass: mass / count,
        forwards: 0,
    }
}

async fn send(
    client: &Client<HttpConnector, Full<Bytes>>,
    url: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value> {
    let uri: Uri = format!("{url}{path}").parse()?;
    let request = match body {
        None => Request::get(uri).body(Full::default())?,
        Some(body) => Request::post(uri)
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))?,
    };
    let response = client.request(request).await?;
    let status = response.status();
    let answer: Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
    let is_known = answer["error"]["param"] == "diffusion.read";
    ensure!(status.is_success() || is_known, "{path}: {status} {answer}");
    Ok(answer)
}

fn table(report: &DecideReport) -> String {
    let mut out = format!(
        "{}, {} held-out sums\n{:<6} {:>6} {:<10} {:>9} {:>7} {:>9} {:>11} {:>8}\n",
        report.model,
        report.problems,
        "read",
        "orders",
        "kind",
        "right %",
        "ECE %",
        "agree %",
        "mass",
        "forwards"
    );
    for row in &report.decisions {
        let agreement = row.agreement.map_or_else(|| "-".to_owned(), |share| share.to_string());
        let _ = writeln!(
            out,
            "{:<6} {:>6} {:<10} {:>9.1} {:>7.1} {:>9} {:>11.2e} {:>8}",
            row.read,
            row.orders,
            row.kind,
            row.accuracy,
            row.calibration_error,
            agreement,
            row.option_mass,
            row.forwards
        );
    }
    out
}
