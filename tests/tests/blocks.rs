//! The block-causal demo model (SDAR's architecture) on trained weights: its answers are right by every
//! decoder of blocks, and rules that verify need fewer forward passes than one token at a time. On it
//! and on the causal demo model a text that its budget cuts is the beginning of the longer one.

use cli::config::Config;
use engine::Request;
use engine::decoding::{Decoders, Decoding, DecodingSpec};
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

/// The block-causal model, and what decoders of it resolve to.
fn runner() -> (Runner, impl Fn(&str) -> Decoding) {
    runner_of("demo-sdar", DEFAULT)
}

fn runner_of(model: &str, default: &str) -> (Runner, impl Fn(&str) -> Decoding) {
    let mut config = Config::default();
    model.clone_into(&mut config.model.path);
    let loaded = cli::load::load(&config).expect("it is embedded");
    let decoders = Decoders::of(loaded.weights);
    assert_eq!(decoders.default_preset(), default);
    let decoding = move |settings: &str| {
        let spec = DecodingSpec::parse(settings).expect("settings");
        decoders.resolve(&spec).expect("the weights support them")
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

/// Budgets that end inside of a block or a window: both are computed whole, and the text is cut.
#[test]
fn a_text_that_its_budget_cuts_begins_the_longer_one() {
    const LONG: u32 = 64;
    for (model, default, decoders) in [
        ("demo-sdar", DEFAULT, &["block_causal", "d2f", "s2d2"][..]),
        (
            "demo-wedlm",
            "wedlm_next",
            &["wedlm", "wedlm_exact", "wedlm_next", "autoregressive"],
        ),
    ] {
        let (mut runner, decoding) = runner_of(model, default);
        let problems = problems();
        for settings in decoders {
            let decoding = decoding(settings);
            let mut texts = |budget: &dyn Fn(usize) -> u32| {
                let asked = problems.iter().enumerate().map(|(at, problem)| {
                    runner
                        .ask(&problem.prompt, budget(at), &decoding)
                        .expect("it encodes")
                });
                let requests: Vec<Request> = asked.collect();
                let arrivals = closed(requests.len(), 5);
                runner.run(requests, arrivals).expect("every step runs").1
            };
            let long = texts(&|_| LONG);
            let short = texts(&|at| 1 + (at as u32 * 7) % (LONG - 1));
            for (at, (short, long)) in short.iter().zip(&long).enumerate() {
                let budget = 1 + (at * 7) % (LONG as usize - 1);
                let expected = &long[..budget.min(long.len())];
                assert_eq!(short, expected, "{model}, {settings}, {budget} tokens");
            }
        }
    }
}
