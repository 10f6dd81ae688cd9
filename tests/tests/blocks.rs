//! The block-causal demo model (SDAR's architecture) on trained weights: its answers are right by every
//! decoder of blocks, and rules that verify need fewer forward passes than one token at a time.

use cli::config::Config;
use engine::Request;
use engine::decoding::{Decoding, DecodingSpec};
use lab::bench::{Runner, closed};
use lab::grade::grade;
use lab::problems::{Problem, Split, Task, generate};

/// The weights' default.
const DEFAULT: &str = "block_causal";
const ONE: &str = "block_causal,commit=top_k,tokens_per_step=1";
/// Problems of each family.
const EACH: usize = 10;
const BUDGET: u32 = 128;
/// Of ten problems, the least that are right as a whole.
const LEAST: usize = 8;

/// The model, and what decoders of it resolve to.
fn runner() -> (Runner, impl Fn(&str) -> Decoding) {
    let mut config = Config::default();
    "demo-sdar".clone_into(&mut config.model.path);
    let loaded = cli::load::load(&config).expect("it is embedded");
    let weights = loaded.weights;
    assert_eq!(weights.default_preset(), DEFAULT);
    let decoding = move |settings: &str| {
        let spec = DecodingSpec::parse(settings).expect("settings");
        let resolved = spec.suited_to(weights).resolve();
        resolved.expect("the weights support them")
    };
    (Runner::new(loaded, &config).expect("a decoder"), decoding)
}

fn problems() -> Vec<Problem> {
    let families = Task::ALL.into_iter();
    families
        .flat_map(|task| generate(task, Split::Eval, 19, EACH))
        .collect()
}

/// What a decoder made of the problems.
struct Found {
    answers: Vec<Vec<u32>>,
    /// Answers whose whole text is right.
    right: usize,
    /// Forward passes of all answers.
    forwards: u64,
}

fn answers(runner: &mut Runner, problems: &[Problem], decoding: &Decoding) -> Found {
    let ask = |problem: &Problem| runner.ask(&problem.prompt, BUDGET, decoding);
    let requests: Result<Vec<Request>, _> = problems.iter().map(ask).collect();
    let requests = requests.expect("they encode");
    let arrivals = closed(requests.len(), 5);
    let (tally, answers) = runner.run(requests, arrivals).expect("every step runs");
    let tokenizer = runner.tokenizer();
    let graded = problems.iter().zip(&answers);
    let graded = graded.map(|(problem, ids)| grade(problem, &tokenizer.decode(ids, true)));
    let right = graded.filter(|grade| grade.strict).count();
    let (label, passes) = (&decoding.label, tally.forwards);
    println!("{label}: {right} of {}, {passes} passes", answers.len());
    Found {
        answers,
        right,
        forwards: passes,
    }
}

#[test]
fn most_answers_are_right_by_every_decoder_of_blocks() {
    let (mut runner, decoding) = runner();
    let problems = problems();
    let one = answers(&mut runner, &problems, &decoding(ONE));
    assert!(10 * one.right >= LEAST * problems.len());
    for settings in [
        DEFAULT,
        "block_causal,commit=entropy_bound",
        "block_causal,commit=nested_drafts",
        "s2d2",
    ] {
        let found = answers(&mut runner, &problems, &decoding(settings));
        let (right, passes) = (found.right, found.forwards);
        assert!(10 * right >= LEAST * problems.len(), "{settings}: {right}");
        assert!(passes < one.forwards, "{settings}: {passes} passes");
    }
}

/// FreeDave's promise on trained weights: the answers of one token at a time, in fewer forward passes.
#[test]
fn verified_drafts_are_the_answers_of_one_token_at_a_time() {
    let (mut runner, decoding) = runner();
    let problems = problems();
    let one = answers(&mut runner, &problems, &decoding(ONE));
    let settings = decoding("block_causal,commit=draft_verify");
    let verified = answers(&mut runner, &problems, &settings);
    assert_eq!(verified.answers, one.answers);
    assert!(verified.forwards < one.forwards);
}
