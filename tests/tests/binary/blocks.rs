//! Blocks, verified drafts and budgets on the trained demo models: answers are right by every decoder of
//! blocks, rules that verify give the verifier's text in fewer forward passes, and a text that its budget
//! cuts is the beginning of the longer one.

use asynclane_tests::process::Server;
use asynclane_tests::reply::Reply;
use asynclane_tests::served::in_parallel;
use problems::{Problem, Split, Task, generate, is_strict};
use serde_json::{Value, json};

const BUDGET: u32 = 128;
/// Requests in flight.
const CONNECTIONS: usize = 5;
/// The served model's name.
const NAME: &str = "model";
/// The least number of right answers among ten.
const LEAST: usize = 8;
const ONE: &str = "block_causal,commit=top_k,tokens_per_step=1";

/// A server of one of the embedded models or of a folder.
pub(crate) fn serve(arguments: &[&str]) -> Server {
    Server::start(&[arguments, &["--served-model-name", NAME]].concat())
}

/// `each` problems of every family.
fn problems(seed: u64, each: usize) -> Vec<Problem> {
    let generated = |task| generate(task, Split::Eval, seed, each);
    Task::ALL.into_iter().flat_map(generated).collect()
}

/// The answers to problems, and their cost.
pub(crate) struct Found {
    pub(crate) answers: Vec<Vec<u32>>,
    /// Answers whose whole text is right.
    pub(crate) right: usize,
    pub(crate) forwards: u64,
    pub(crate) positions: u64,
    /// Delivered tokens.
    pub(crate) tokens: u64,
    /// `usage.diffusion.draft_model` of each.
    drafts: Vec<Value>,
}

impl Found {
    fn drafts(&self, field: &str) -> u64 {
        let counts = self.drafts.iter().filter_map(|drafts| drafts[field].as_u64());
        counts.sum()
    }
}

/// A preset and `key=value` settings as a request writes them.
fn settings(decoder: &str) -> Value {
    let mut parts = decoder.split(',');
    let mut settings = json!({"preset": parts.next()});
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        settings[key] = value.parse().unwrap_or_else(|_| json!(value));
    }
    settings
}

/// Greedy answers to all problems with a decoder, the budget by a problem's index.
pub(crate) fn answers(
    server: &Server,
    problems: &[Problem],
    decoder: &str,
    budget: impl Fn(usize) -> u32 + Sync,
    connections: usize,
) -> Found {
    let numbered: Vec<(usize, &Problem)> = problems.iter().enumerate().collect();
    let replies = in_parallel(connections, &numbered, |(index, problem)| {
        let body = json!({"model": NAME, "messages": [{"role": "user", "content": problem.prompt}],
            "max_tokens": budget(*index), "temperature": 0, "return_token_ids": true,
            "diffusion": settings(decoder)});
        Reply::of_answer(&server.client().json("/v1/chat/completions", &body))
    });
    let is_right =
        |(reply, problem): &(&Reply, &Problem)| is_strict(problem, &reply.choices[0].text);
    let sum = |field: &str| replies.iter().map(|reply| reply.count(field)).sum();
    let drafts = replies.iter().map(|reply| reply.usage["diffusion"]["draft_model"].clone());
    let ids = replies.iter().map(|reply| reply.choices[0].token_ids.clone());
    Found {
        right: replies.iter().zip(problems).filter(is_right).count(),
        forwards: sum("forwards"),
        positions: sum("positions"),
        tokens: sum("completion_tokens"),
        drafts: drafts.collect(),
        answers: ids.collect(),
    }
}

#[test]
fn most_answers_are_right_by_every_decoder_of_blocks() {
    let server = serve(&["--model", "demo-sdar"]);
    let problems = problems(19, 10);
    let answered = |decoder| answers(&server, &problems, decoder, |_| BUDGET, CONNECTIONS);
    let one = answered(ONE);
    assert!(10 * one.right >= LEAST * problems.len(), "{}", one.right);
    for decoder in [
        "block_causal",
        "block_causal,commit=entropy_bound",
        "block_causal,commit=nested_drafts",
        "s2d2",
        "block_causal,commit=draft_verify",
    ] {
        let found = answered(decoder);
        let (right, forwards) = (found.right, found.forwards);
        assert!(10 * right >= LEAST * problems.len(), "{decoder}: {right}");
        assert!(forwards < one.forwards, "{decoder}: {forwards} forwards");
        // FreeDave's promise: the answers of one token at a time.
        if decoder.ends_with("draft_verify") {
            assert_eq!(found.answers, one.answers);
        }
    }
}

/// Budgets that end inside of a block or a window: both are computed whole, and the text is cut.
#[test]
fn a_text_that_its_budget_cuts_begins_the_longer_one() {
    const LONG: u32 = 64;
    let problems = problems(19, 10);
    for (model, decoders) in [
        ("demo-sdar", &["block_causal", "d2f", "s2d2"][..]),
        ("demo-wedlm", &["wedlm", "wedlm_exact", "wedlm_next", "autoregressive"]),
    ] {
        let server = serve(&["--model", model]);
        let budget = |index: usize| 1 + (index as u32 * 7) % (LONG - 1);
        for decoder in decoders {
            let long = answers(&server, &problems, decoder, |_| LONG, CONNECTIONS).answers;
            let short = answers(&server, &problems, decoder, budget, CONNECTIONS).answers;
            for (index, (short, long)) in short.iter().zip(&long).enumerate() {
                let expected = &long[..long.len().min(budget(index) as usize)];
                assert_eq!(short, expected, "{model}, {decoder}, problem {index}");
            }
        }
    }
}

/// DiffuSpec (arXiv 2510.02358) on a pair of demo models: the verifier's own texts in fewer of its
/// forward passes, alone and beside others, whatever drafts and how many.
#[test]
fn drafts_change_the_cost_alone() {
    const VERIFIER: &str = "demo-wedlm";
    const LENGTH: u32 = 48;
    let pair = |draft_model: &str, draft_decoder: &str| {
        let draft = ["--draft-model", draft_model, "--draft-decoder", draft_decoder];
        serve(&[&["--model", VERIFIER], &draft[..]].concat())
    };
    let accepted = |found: &Found| {
        let [accepted, drafted] =
            ["accepted_tokens", "drafted_tokens"].map(|field| found.drafts(field));
        (accepted, drafted)
    };
    let problems = problems(5, 4);
    let replies = |server: &Server, decoder: &str, connections: usize| {
        answers(server, &problems, decoder, |_| LENGTH, connections)
    };
    let server = pair("demo", "auto");
    let own = replies(&server, "autoregressive", 1);
    assert!(own.drafts.iter().all(Value::is_null));
    let mut alone = None;
    for (decoder, connections) in [
        ("speculative", 1),
        ("speculative", CONNECTIONS),
        ("speculative,draft_length=3", CONNECTIONS),
    ] {
        let found = replies(&server, decoder, connections);
        assert_eq!(found.answers, own.answers, "{decoder}, {connections}");
        assert!(found.forwards < own.forwards, "{decoder}");
        let (accepted, drafted) = accepted(&found);
        let some = accepted > 0 && accepted < drafted;
        assert!(some, "{accepted} of {drafted}");
        assert!(found.drafts("positions") >= found.drafts("forwards"));
        // Neighbours change no sequence's cost.
        if decoder == "speculative" {
            let cost = (found.forwards, found.drafts);
            assert_eq!(*alone.get_or_insert(cost.clone()), cost);
        }
    }
    for (draft_model, draft_decoder) in [
        ("demo", "vanilla"),
        ("demo", "fast_dllm_prefix,threshold=0.2"),
        (VERIFIER, "auto"),
        (VERIFIER, "autoregressive"),
    ] {
        let found = replies(&pair(draft_model, draft_decoder), "speculative", 3);
        assert_eq!(found.answers, own.answers, "{draft_model} {draft_decoder}");
        let (accepted, drafted) = accepted(&found);
        assert!(drafted > 0);
        if (draft_model, draft_decoder) == (VERIFIER, "autoregressive") {
            // It drafts what it then confirms, up to the end of the text.
            assert!(accepted * 10 > drafted * 6, "{accepted} of {drafted}");
        }
    }
}
