//! Step events of positions that change more than once.

use decode::{Commit, CommitKind, Effect, ForwardKind, Offset};
use engine::{Draw, StepTrace};
use text::{Tokenizer, TokenizerFiles};

use super::{Cell, Steps};
use crate::pipeline::lanes::Lanes;

const MASK: u32 = 5;

fn tokenizer() -> Tokenizer {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/checkpoint");
    let files = TokenizerFiles::read(std::path::Path::new(folder)).expect("the files are readable");
    let mut tokenizer = Tokenizer::new(&files).expect("the files are in order");
    tokenizer.set_mask_id(MASK);
    tokenizer
}

fn step(number: u32, effects: &[Effect]) -> StepTrace {
    StepTrace {
        step: number,
        kind: ForwardKind::Decode,
        lanes: Vec::new(),
        rows: Vec::new(),
        effects: effects.to_vec(),
        draws: Vec::new(),
        frontier: Offset::ZERO,
        canvas: 8,
    }
}

fn place(offset: u32, token: u32) -> Effect {
    Effect::Place(Commit {
        offset: Offset::new(offset),
        token,
        probability: 0.5,
        kind: CommitKind::Masked,
    })
}

fn commit(offset: u32, token: u32) -> Effect {
    Effect::Commit(Commit {
        offset: Offset::new(offset),
        token,
        probability: 0.75,
        kind: CommitKind::Masked,
    })
}

fn revoke(offset: u32) -> Effect {
    let offset = Offset::new(offset);
    Effect::Revoke { offset }
}

#[test]
fn a_position_is_what_its_last_change_made_it() {
    let tokenizer = tokenizer();
    let text = |token| tokenizer.token_text(token);
    let mut steps = Steps::new(Lanes::default());
    let mut cells = |effects: &[Effect]| {
        steps.push(&step(1, effects));
        steps.take(&tokenizer).map(|event| event.cells)
    };
    let provisional: Cell = (2, 70, text(70), 0.5, "provisional");
    assert_eq!(cells(&[place(2, 70)]), Some(vec![provisional.clone()]));
    let masked: Cell = (2, MASK, String::new(), 0.0, "masked");
    assert_eq!(cells(&[revoke(2)]), Some(vec![masked]));
    let committed: Cell = (2, 71, text(71), 0.75, "committed");
    let again = [place(2, 71), commit(2, 71), place(4, 70)];
    let other: Cell = (4, 70, text(70), 0.5, "provisional");
    assert_eq!(cells(&again), Some(vec![committed, other]));
}

#[test]
fn merged_steps_tell_the_last_change_too() {
    let tokenizer = tokenizer();
    let mut steps = Steps::new(Lanes::default());
    steps.push(&step(1, &[place(2, 70), place(3, 71)]));
    steps.push(&step(2, &[revoke(2)]));
    let event = steps.take(&tokenizer).expect("two steps were pushed");
    assert_eq!((event.step, event.skipped, event.canvas), (2, 1, 8));
    let kinds: Vec<_> = event.cells.iter().map(|cell| (cell.0, cell.1, cell.4)).collect();
    assert_eq!(kinds, [(2, MASK, "masked"), (3, 71, "provisional")]);
}

#[test]
fn drawn_tokens_are_kept_or_renoised_until_they_are_committed() {
    let tokenizer = tokenizer();
    let drawn =
        |offset, token, kept| Draw { offset: Offset::new(offset), token, probability: 0.25, kept };
    let mut steps = Steps::new(Lanes::default());
    let mut shown = |effects: &[Effect], draws: &[Draw]| {
        let step = StepTrace { draws: draws.to_vec(), ..step(1, effects) };
        steps.push(&step);
        steps.take(&tokenizer).map(|event| event.cells)
    };
    let text = |token| tokenizer.token_text(token);
    let kept: Cell = (0, 70, text(70), 0.25, "kept");
    let renoised: Cell = (1, 71, text(71), 0.25, "renoised");
    let draws = [drawn(0, 70, true), drawn(1, 71, false)];
    assert_eq!(shown(&[], &draws), Some(vec![kept, renoised]));
    let committed: Cell = (0, 70, text(70), 0.75, "committed");
    let still: Cell = (1, 72, text(72), 0.25, "kept");
    let cells = shown(&[commit(0, 70)], &[drawn(1, 72, true)]);
    assert_eq!(cells, Some(vec![committed, still]));
}
