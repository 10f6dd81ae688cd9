//! Decoding under a grammar, step by step, with the exact effects.

use asynclane_decode::{Birth, Constraint, DoneReason};

use crate::common::{
    Bench, Slots, advance, asynclane, block_wise, done, draft, finish, generate, masked, place,
    placed_draft, resize, revoke, schedule, shorten, with_schedule,
};

const SLOTS: Slots = Slots(&[&["a", " b"], &["("], &["7", " 42"], &["7", " 42"], &[")"]]);

#[test]
fn what_does_not_continue_the_prefix_is_provisional_until_the_frontier_arrives() {
    let mut bench = Bench::under(SLOTS, &block_wise(8), 8);
    // The rule wants offsets 1 and 3; the frontier is committed with them, and what is forced.
    let effects = bench.step(&[(0, "a", 0.3), (1, "(", 0.95), (3, " 42", 0.95)]);
    let expected =
        [masked(0, "a", 0.3), masked(1, "(", 0.95), place(3, " 42", 0.95), advance(0, 2)];
    assert_eq!(effects, expected);
    assert_eq!(bench.canvas(), "a(_ 42____");
    // The frontier passes the provisional token; the last bracket is forced, and no token may
    // follow it.
    let effects = bench.step(&[(2, "7", 0.5)]);
    let expected = [
        masked(2, "7", 0.5),
        masked(3, " 42", 0.95),
        masked(4, ")", 1.0),
        advance(2, 5),
        done(DoneReason::Complete),
    ];
    assert_eq!(effects, expected);
}

#[test]
fn a_token_that_does_not_fit_takes_everything_behind_it_along() {
    let mut bench = Bench::under(SLOTS, &block_wise(8), 8);
    let said = [(0, "a", 0.3), (2, ".", 0.95), (3, "7", 0.95), (4, ")", 0.99)];
    let expected = [
        masked(0, "a", 0.3),
        masked(1, "(", 1.0),
        // Offset 2 is the frontier now, and a full stop may not stand there.
        advance(0, 2),
    ];
    assert_eq!(bench.step(&said), expected);
    let said = [(2, " 42", 0.3), (4, ".", 0.95), (5, "a", 0.95)];
    let expected = [masked(2, " 42", 0.3), place(4, ".", 0.95), place(5, "a", 0.95), advance(2, 3)];
    assert_eq!(bench.step(&said), expected);
    let expected = [
        masked(3, "7", 0.2),
        revoke(4),
        revoke(5),
        masked(4, ")", 1.0),
        advance(3, 5),
        done(DoneReason::Complete),
    ];
    assert_eq!(bench.step(&[(3, "7", 0.2)]), expected);
}

#[test]
fn a_forced_token_replaces_a_provisional_one_that_differs() {
    let slots = Slots(&[&["a", " b"], &["a", "("], &["7"], &["a", ")"], &["7", "a"]]);
    let mut bench = Bench::under(slots, &block_wise(8), 8);
    let said = [(0, "a", 0.3), (2, " 42", 0.95), (3, ")", 0.95)];
    let expected = [masked(0, "a", 0.3), place(2, " 42", 0.95), place(3, ")", 0.95), advance(0, 1)];
    assert_eq!(bench.step(&said), expected);
    let expected = [masked(1, "(", 0.3), revoke(2), revoke(3), masked(2, "7", 1.0), advance(1, 3)];
    assert_eq!(bench.step(&[(1, "(", 0.3)]), expected);
}

#[test]
fn a_streaming_window_commits_what_is_forced_beyond_its_end() {
    let slots = Slots(&[&["a", " b"], &["("], &["7"], &[")"], &["7", "a"], &["("]]);
    let config = with_schedule(schedule("streaming").with("window", 1u32));
    let mut bench = Bench::under(slots, &config, 8);
    let expected = [
        masked(0, "a", 0.3),
        masked(1, "(", 1.0),
        masked(2, "7", 1.0),
        masked(3, ")", 1.0),
        resize(0, 5),
        advance(0, 4),
    ];
    assert_eq!(bench.step(&[(0, "a", 0.3)]), expected);
    let expected = [
        masked(4, "7", 0.4),
        masked(5, "(", 1.0),
        resize(0, 7),
        advance(4, 6),
        done(DoneReason::Complete),
    ];
    assert_eq!(bench.step(&[(4, "7", 0.4)]), expected);
}

#[test]
fn a_stop_token_ends_a_complete_text_and_no_other() {
    /// Any number of "a", complete from the second on.
    #[derive(Clone, Debug)]
    struct Some(u32);
    impl Constraint for Some {
        fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), asynclane_decode::ConstraintError> {
            *set = vec![1 << crate::common::id("a")];
            Ok(())
        }
        fn accept(&mut self, token: u32) -> Result<bool, asynclane_decode::ConstraintError> {
            let fits = token == crate::common::id("a");
            self.0 += u32::from(fits);
            Ok(fits)
        }
        fn forced(&mut self, tokens: &mut Vec<u32>) {
            tokens.clear();
        }
        fn may_end(&mut self) -> bool {
            self.0 >= 2
        }
        fn is_over(&mut self) -> bool {
            false
        }
        fn boxed_clone(&self) -> Box<dyn Constraint> {
            Box::new(self.clone())
        }
    }
    let mut bench = Bench::under(Some(0), &block_wise(8), 8);
    let allows_stop = |bench: &Bench| bench.decoder.allowed().expect("a grammar")[0] & 0b110 != 0;
    assert!(!allows_stop(&bench));
    // The stop token at offset 1 comes too early: it is dropped with everything right of it.
    let said = [(0, "a", 0.3), (1, "<eos>", 0.99), (2, "a", 0.99)];
    assert_eq!(bench.step(&said), [masked(0, "a", 0.3), advance(0, 1)]);
    assert!(!allows_stop(&bench));
    bench.step(&[(1, "a", 0.3)]);
    assert!(allows_stop(&bench));
    let said = [(2, "<eot>", 0.4), (3, "a", 0.99)];
    let expected = [masked(2, "<eot>", 0.4), shorten(3), finish(0, 3), done(DoneReason::StopToken)];
    assert_eq!(bench.step(&said), expected);
}

#[test]
fn forks_are_off_and_drafts_are_provisional() {
    const WORD: &[&str] = &["a", " b"];
    let slots = Slots(&[WORD; 12]);
    let config =
        asynclane().with("block_length", 2u32).with("lookahead", 4u32).with("draft_threshold", 0.5);
    let config = with_schedule(config);
    let mut bench = Bench::under(slots, &config, 12);
    let effects = bench.step(&[(0, "a", 0.95), (3, ".", 0.95), (4, "a", 0.6)]);
    let expected = [
        masked(0, "a", 0.95),
        placed_draft(3, ".", 0.95),
        placed_draft(4, "a", 0.6),
        advance(0, 1),
    ];
    assert_eq!(effects, expected);
    // Offset 2 lies right of the lane but continues the prefix: a final draft.
    let effects = bench.step(&[(1, "a", 0.95), (2, " b", 0.6)]);
    let expected = [
        masked(1, "a", 0.95),
        draft(2, " b", 0.6),
        revoke(3),
        revoke(4),
        finish(0, 2),
        generate(1, Option::Some(0), 2..4, Birth::Active),
        advance(1, 3),
    ];
    assert_eq!(effects, expected);
}

#[test]
fn a_budget_that_runs_out_says_so_and_an_empty_grammar_is_complete_at_birth() {
    let mut bench = Bench::under(SLOTS, &block_wise(8), 2);
    let expected = [
        masked(0, "a", 0.3),
        masked(1, "(", 1.0),
        finish(0, 2),
        advance(0, 2),
        done(DoneReason::Budget),
    ];
    assert_eq!(bench.step(&[(0, "a", 0.3), (1, "7", 0.1)]), expected);
    // A grammar whose text ends with the last token of the budget is complete.
    let mut bench = Bench::under(Slots(&[&["a", " b"]]), &block_wise(8), 1);
    bench.step(&[(0, "a", 0.3)]);
    assert_eq!(bench.decoder.done(), Option::Some(DoneReason::Complete));
    let bench = Bench::under(Slots(&[]), &block_wise(8), 4);
    assert_eq!(bench.born, [done(DoneReason::Complete)]);
}

#[test]
fn a_grammar_without_a_word_left_fails_its_sequence() {
    let mut bench = Bench::under(Slots(&[&["a", " b"], &[]]), &block_wise(8), 4);
    let effects = bench.step(&[(0, "a", 0.3)]);
    let expected = [masked(0, "a", 0.3), advance(0, 1), done(DoneReason::Failed)];
    assert_eq!(effects, expected);
    let failure = bench.decoder.failure().expect("it has failed").to_string();
    assert_eq!(failure, "no token of the vocabulary can continue the text");
}
