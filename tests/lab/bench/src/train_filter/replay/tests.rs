//! A replay worked by hand.

use super::*;

const STOP: u32 = 9;
const MASK: u32 = 0;

/// One candidate per token, confidence 0.5.
fn says(tokens: &[u32]) -> Vec<Candidate> {
    let candidate = |token: &u32| Candidate {
        token: *token,
        probability: 0.5,
        runner_up: MASK,
        runner_up_probability: 0.0,
        entropy: 0.0,
        gap: 0.0,
        present: 0.0,
    };
    tokens.iter().map(candidate).collect()
}

/// The rows of the next forward: their tokens, and which positions it scores.
fn forward(replay: &Replay<'_>) -> (Vec<u32>, Range<u32>) {
    let mut batch = Batch::default();
    replay.plan(&mut batch, MASK, 4);
    let mut scored = batch.rows.iter().filter(|row| row.score.is_wanted());
    let first = scored.next().expect("a block has positions").position.get();
    assert_eq!(batch.segments[0].pages.end, batch.rows[0].visible_end.get().div_ceil(4));
    (batch.rows.iter().map(|row| row.token).collect(), first..first + 1 + scored.count() as u32)
}

#[test]
fn right_favourites_are_kept_and_a_step_without_one_fills_the_block() {
    // The answer 1 2 3 4 | 5 6, then a stop token; four offsets to a block.
    let known = Known { prompt: &[7, 8], answer: &[1, 2, 3, 4, 5, 6], budget: 12, stops: &[STOP] };
    let mut replay = Replay::new(known, 4);
    let mut expect = |rows: &[u32], scored, said: &[u32], right: &[Option<bool>]| {
        assert_eq!(forward(&replay), (rows.to_vec(), scored));
        let example = replay.observe(&says(said));
        assert_eq!(example.right, right);
        let known = vec![0.5; said.len()];
        assert_eq!(example.confidences[..said.len()], known);
        assert!(example.confidences[said.len()..].iter().all(|c| *c == 1.0));
    };
    let (yes, no, known) = (Some(true), Some(false), None);

    let mut canvas = vec![7, 8];
    canvas.extend([MASK; 12]);
    expect(&canvas, 2..6, &[1, 3, 3, 3], &[yes, no, yes, no]);
    // Only the block now. Favourites of committed positions are no matter.
    expect(&[1, MASK, 3, MASK], 2..6, &[5, 2, 5, 5], &[known, yes, known, no]);
    // Nothing new is right: the answer fills the block.
    expect(&[1, 2, 3, MASK], 2..6, &[1, 2, 3, 5], &[known, known, known, no]);
    // A new block. Any stop token is right behind the answer; it ends the canvas.
    canvas[2..6].copy_from_slice(&[1, 2, 3, 4]);
    expect(&canvas, 6..10, &[5, STOP, 3, STOP], &[yes, no, no, yes]);
    expect(&[5, MASK, MASK, STOP], 6..10, &[5, 6, STOP, STOP], &[known, yes, yes, known]);
    assert!(replay.is_done());
}

#[test]
fn an_answer_without_an_end_fills_its_budget() {
    let known = Known { prompt: &[], answer: &[1, 2, 3], budget: 3, stops: &[STOP] };
    let mut replay = Replay::new(known, 2);
    let first = replay.observe(&says(&[STOP, STOP]));
    assert_eq!(first.right, [Some(false), Some(false)]);
    assert_eq!(forward(&replay), (vec![1, 2, MASK], 2..3));
    // The last block is shorter than the others.
    let last = replay.observe(&says(&[3]));
    assert_eq!(last.right, [Some(true), None]);
    assert_eq!(last.confidences, [0.5, 1.0]);
    assert!(replay.is_done());
}

#[test]
fn an_empty_answer_without_stop_tokens_is_done_at_once() {
    let known = Known { prompt: &[7], answer: &[], budget: 5, stops: &[] };
    assert!(Replay::new(known, 4).is_done());
}
