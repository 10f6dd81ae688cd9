//! Scores of rows: penalties, grammars, most probable tokens.

use asynclane_engine::{
    Event, Extras, Given, LogitChanges, Penalties, Refusal, Request, TokenLogprob,
};
use step::{Bias, Score, TopToken};

use crate::common::{Automaton, STOP, Scripted, request};

const BLOCKS: &str =
    "schedule=block_wise,commit=threshold,threshold=0.9,block_length=4,cache=none,prune=false";

/// The biases of the next step's scored rows, which share them.
fn biases(scripted: &mut Scripted) -> Vec<Bias> {
    scripted.step(&[(0, 20, 0.95)]);
    scripted.step(&[(1, 20, 0.95)]);
    scripted.step(&[(2, 21, 0.95)]);
    let batch = scripted.plan();
    let row = batch.rows.iter().find(|row| row.score == Score::Candidate);
    let range = row.expect("a mask is left").biases.clone();
    batch.biases[range.start as usize..range.end as usize].to_vec()
}

#[test]
fn penalties_follow_what_is_committed() {
    let plain = request(&[10, 20, 10], 8, BLOCKS);
    assert_eq!(biases(&mut Scripted::new(plain.clone())), []);
    let penalties = Penalties { frequency: 0.5, presence: 0.25, repetition: 1.0 };
    let asked = Request {
        logits: LogitChanges { penalties, biases: vec![Bias::add(30, 1.0)], only: None },
        ..plain.clone()
    };
    let expected = [Bias::add(20, -1.25), Bias::add(21, -0.75), Bias::add(30, 1.0)];
    assert_eq!(biases(&mut Scripted::new(asked)), expected);
    // The repetition penalty counts prompt and suffix too.
    let penalties = Penalties { repetition: 1.5, ..Penalties::default() };
    let asked = Request {
        logits: LogitChanges { penalties, ..LogitChanges::default() },
        given: Given { suffix: vec![11], ..Given::default() },
        ..plain
    };
    let repeated = |token| Bias { token, repetition: 1.5, amount: 0.0 };
    let expected = [10, 11, 20, 21].map(repeated);
    assert_eq!(biases(&mut Scripted::new(asked)), expected);
}

#[test]
fn a_grammar_speaks_of_the_frontier_alone() {
    let mut grammar = Automaton::new(3);
    let asked = Request { constraint: Some(Box::new(grammar)), ..request(&[10], 8, BLOCKS) };
    let mut scripted = Scripted::new(asked);
    let mut frontier = 0;
    for _ in 0..3 {
        let batch = scripted.plan();
        let mut expected = Vec::new();
        decode::Constraint::allowed(&mut grammar, &mut expected).expect("it never fails");
        if decode::Constraint::may_end(&mut grammar) {
            expected[0] |= 1 << STOP;
        }
        assert_eq!(batch.allowed, expected);
        let limited = batch.rows.iter().filter(|row| row.allowed.is_some());
        let limited: Vec<_> = limited.map(|row| (row.position.get(), row.allowed)).collect();
        assert_eq!(limited, [(1 + frontier, Some(0))]);
        let first = (10..64).find(|token| expected[*token as usize / 32] >> (token % 32) & 1 == 1);
        scripted.step(&[(frontier, first.expect("a word"), 0.95)]);
        for event in scripted.events.drain(..) {
            if let Event::Tokens { chunk, .. } = event {
                for token in chunk.as_slice() {
                    let fits = decode::Constraint::accept(&mut grammar, *token);
                    assert_eq!(fits, Ok(true));
                    frontier += 1;
                }
            }
        }
    }
}

fn logprobs(scripted: &mut Scripted) -> Vec<TokenLogprob> {
    let mut all = Vec::new();
    for event in scripted.events.drain(..) {
        if let Event::Tokens { chunk, logprobs, .. } = event {
            let logprobs = logprobs.expect("they were asked for");
            assert_eq!(logprobs.len(), chunk.as_slice().len());
            all.extend(logprobs);
        }
    }
    all
}

#[test]
fn every_token_comes_with_the_probability_of_the_forward_that_committed_it() {
    let asked = Request { extras: logprobs_of(2), ..request(&[10], 4, BLOCKS) };
    let mut scripted = Scripted::new(asked);
    let top = |token, probability: f64| TopToken { token, logprob: probability.ln() as f32 };
    let entry = |token, probability: f64| TokenLogprob {
        logprob: probability.ln() as f32,
        top: [top(token, probability), top(62, 0.001)].into(),
    };
    // Offset 2 is committed a step before the frontier reaches it.
    scripted.step(&[(0, 20, 0.5), (2, 22, 0.95)]);
    assert!(logprobs(&mut scripted).is_empty());
    scripted.step(&[(0, 20, 0.92), (1, 21, 0.91)]);
    let expected = [entry(20, 0.92), entry(21, 0.91), entry(22, 0.95)];
    assert_eq!(logprobs(&mut scripted), expected);
    // With 0 most probable tokens, only the token's own log-probability.
    let asked = Request { extras: logprobs_of(0), ..request(&[10], 4, BLOCKS) };
    let mut scripted = Scripted::new(asked);
    scripted.step(&[(0, 20, 0.5)]);
    let own = TokenLogprob { logprob: 0.5f64.ln() as f32, top: [].into() };
    assert_eq!(logprobs(&mut scripted), [own]);
}

#[test]
fn a_forced_token_is_certain() {
    /// Allows the text "20 21 22" alone.
    #[derive(Clone, Debug)]
    struct Line(Vec<u32>);
    impl decode::Constraint for Line {
        fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), decode::ConstraintError> {
            *set = vec![0; 2];
            let next = self.0[0];
            set[next as usize / 32] |= 1 << (next % 32);
            Ok(())
        }
        fn accept(&mut self, token: u32) -> Result<bool, decode::ConstraintError> {
            let fits = self.0.first() == Some(&token);
            if fits {
                self.0.remove(0);
            }
            Ok(fits)
        }
        fn forced(&mut self, tokens: &mut Vec<u32>) {
            tokens.clone_from(&self.0);
        }
        fn may_end(&mut self) -> bool {
            self.0.is_empty()
        }
        fn is_over(&mut self) -> bool {
            self.0.is_empty()
        }
        fn boxed_clone(&self) -> Box<dyn decode::Constraint> {
            Box::new(self.clone())
        }
    }
    let asked = Request {
        extras: logprobs_of(1),
        constraint: Some(Box::new(Line(vec![20, 21, 22]))),
        ..request(&[10], 6, BLOCKS)
    };
    let mut scripted = Scripted::new(asked);
    // The model chooses the token of offset 2 too, so its probability is reported.
    scripted.step(&[(0, 20, 0.5), (2, 22, 0.95)]);
    let entry = |token, probability: f64| {
        let logprob = probability.ln() as f32;
        TokenLogprob { logprob, top: [TopToken { token, logprob }].into() }
    };
    let expected = [entry(20, 0.5), entry(21, 1.0), entry(22, 0.95)];
    let finished = scripted.events.pop();
    assert!(matches!(finished, Some(Event::Finished(_))), "{finished:?}");
    assert_eq!(logprobs(&mut scripted), expected);
}

/// Log-probabilities with this number of most probable tokens.
fn logprobs_of(tops: u8) -> Extras {
    Extras { logprobs: Some(tops), ..Extras::default() }
}

/// Listed tokens that alone may be written are one set, of every scored row.
#[test]
fn rows_name_the_tokens_that_are_listed_and_written() {
    let tokens = || Some(std::sync::Arc::from([3, 40]));
    let asked = |only: bool| Request {
        extras: Extras { listed: tokens(), ..logprobs_of(2) },
        logits: LogitChanges { only: tokens().filter(|_| only), ..LogitChanges::default() },
        ..request(&[10], 8, BLOCKS)
    };
    for only in [false, true] {
        let mut scripted = Scripted::new(asked(only));
        let batch = scripted.plan();
        assert_eq!(batch.allowed, [1 << 3, 1 << (40 - 32)]);
        let scored = batch.rows.iter().filter(|row| row.score.is_wanted());
        let scored: Vec<_> = scored.map(|row| (row.score, row.allowed)).collect();
        let listed = (Score::Among { set: 0, count: 2 }, only.then_some(0));
        assert!(!scored.is_empty() && scored.iter().all(|row| *row == listed), "{scored:?}");
    }
    let mut other = Scripted::new(request(&[10], 8, BLOCKS));
    let mut refused = |request: Request| match other.engine.submit(request) {
        Err(Refusal::Field { field, message }) => format!("{field} {message}"),
        other => panic!("{other:?}"),
    };
    let vocabulary = "must be 1 to 255 tokens of the vocabulary";
    let many = LogitChanges { only: Some([64].into()), ..LogitChanges::default() };
    let found = refused(Request { logits: many, ..asked(true) });
    assert_eq!(found, format!("only {vocabulary}"));
    let none = Extras { listed: Some([].into()), ..logprobs_of(0) };
    assert_eq!(refused(Request { extras: none, ..asked(false) }), format!("listed {vocabulary}"));
    let fewer = Extras { listed: tokens(), ..logprobs_of(1) };
    let found = refused(Request { extras: fewer, ..asked(false) });
    assert_eq!(found, "listed must be as many tokens as logprobs says");
    let grammar = Some(Box::new(Automaton::new(3)) as Box<dyn decode::Constraint>);
    let found = refused(Request { constraint: grammar, ..asked(false) });
    assert_eq!(found, "listed does not go with a grammar");
}
