//! The hidden text and the confidence law, seen through a plain block-wise decoder.

use crate::common::{Decoder, batch, config, executor, pages, push, row, rows, run};
use asynclane_sim::{Fidelity, Script, SimConfig, SimExecutor};
use step::Batch;

#[test]
fn every_block_length_writes_the_hidden_text() {
    for prompt in [vec![], vec![9], vec![9, 10, 11, 12, 13, 14, 15]] {
        for block in [1, 8, 32, 160] {
            let mut executor = executor();
            let mut decoder = Decoder::new(&prompt, 160, block, pages(0..64));
            decoder.finish(&mut executor);
            assert_eq!(decoder.output(), executor.hidden_text(&prompt, 160), "{prompt:?} {block}");
        }
    }
}

#[test]
fn two_to_four_tokens_are_committed_per_forward() {
    let (mut tokens, mut forwards) = (0, 0);
    for prompt in 10..30 {
        let mut executor = executor();
        let mut decoder = Decoder::new(&[prompt; 6], 160, 32, pages(0..64));
        decoder.finish(&mut executor);
        tokens += decoder.output().len();
        forwards += decoder.forwards as usize;
    }
    let per_forward = tokens as f64 / forwards as f64;
    assert!((2.0..4.0).contains(&per_forward), "{tokens} tokens in {forwards} forwards");
}

#[test]
fn texts_differ_by_prompt_and_seed_end_in_a_stop_token_and_have_periods() {
    let config = config();
    let executor = executor();
    let text = executor.hidden_text(&[9, 10], 500);
    assert_ne!(text, executor.hidden_text(&[9, 11], 500));
    let seeded = SimExecutor::new(SimConfig { seed: 8, ..config.clone() }).unwrap();
    assert_ne!(text, seeded.hidden_text(&[9, 10], 500));
    let (last, before) = text.split_last().unwrap();
    assert_eq!(*last, config.stop_token);
    assert!(config.text_len.contains(&(before.len() as u32)));
    assert!(!before.contains(&config.mask) && !before.contains(&config.stop_token));
    let periods = before.iter().filter(|&&token| Some(token) == config.period).count();
    assert!(periods.abs_diff(before.len() / 12) <= 1, "{before:?}");
    assert_eq!(executor.hidden_text(&[9, 10], 5), text[..5]);
}

#[test]
fn a_text_without_end_fills_its_budget() {
    let config = SimConfig { text_len: 4096..4097, ..config() };
    let executor = SimExecutor::new(config.clone()).unwrap();
    let text = executor.hidden_text(&[9], 4000);
    assert_eq!(text.len(), 4000);
    assert!(!text.contains(&config.stop_token));
}

#[test]
fn words_limit_the_vocabulary_of_texts() {
    let config = SimConfig { words: vec![40, 41], period: None, ..config() };
    let mut executor = SimExecutor::new(config).unwrap();
    let mut decoder = Decoder::new(&[9], 30, 8, pages(0..8));
    decoder.finish(&mut executor);
    assert!(decoder.output().iter().all(|token| [40, 41].contains(token)));
}

#[test]
fn a_known_token_raises_the_confidence_around_it() {
    let mask = config().mask;
    let mut executor = executor();
    let text = executor.hidden_text(&[9, 10, 11], 8);
    let mut canvas = vec![9, 10, 11];
    canvas.extend([mask; 8]);
    let table = pages(0..3);
    let before = run(&mut executor, &batch(rows(&canvas, 0, 11), &table)).unwrap();
    canvas[7] = text[4];
    let after = run(&mut executor, &batch(rows(&canvas, 0, 11), &table)).unwrap();
    for position in [6, 8] {
        assert_eq!(after[position].token, text[position - 3]);
        assert!(after[position].probability > before[position].probability);
    }
    assert!(after[7].present > 0.5, "the right token is recognised");
    assert_eq!(before[7].present, 0.0, "a mask has no probability");
}

#[test]
fn candidates_do_not_depend_on_batch_neighbours_or_pages() {
    let prompts: [&[u32]; 3] = [&[9, 10, 11], &[20], &[30, 31, 32, 33, 34]];
    let alone: Vec<_> = prompts
        .iter()
        .map(|prompt| {
            let mut executor = executor();
            let mut decoder = Decoder::new(prompt, 48, 16, pages(0..16));
            decoder.finish(&mut executor);
            (decoder.canvas.clone(), decoder.forwards)
        })
        .collect();
    let mut executor = executor();
    let mut together: Vec<_> = (0u32..)
        .zip(prompts)
        .map(|(n, prompt)| Decoder::new(prompt, 48, 16, pages((0..16).map(|page| page * 3 + n))))
        .collect();
    while together.iter().any(|decoder| decoder.open().is_some()) {
        let mut batch = Batch::default();
        let mut running: Vec<_> =
            together.iter_mut().filter(|decoder| decoder.open().is_some()).collect();
        running.iter().for_each(|decoder| decoder.push_to(&mut batch));
        let candidates = run(&mut executor, &batch).unwrap();
        let mut rest = &candidates[..];
        for decoder in &mut running {
            let scored = decoder.rows().iter().filter(|row| row.score != step::Score::None).count();
            let (own, others) = rest.split_at(scored);
            decoder.commit(own);
            rest = others;
        }
        assert!(rest.is_empty());
    }
    let together: Vec<_> =
        together.into_iter().map(|decoder| (decoder.canvas, decoder.forwards)).collect();
    assert_eq!(together, alone);
}

#[test]
fn free_passes_commit_a_fixed_number_of_tokens_per_segment() {
    let config = SimConfig { fidelity: Fidelity::Free, free_width: 2, ..config() };
    let mut executor = SimExecutor::new(config.clone()).unwrap();
    let mut batch = Batch::default();
    for table in [pages(0..2), pages(2..4)] {
        push(&mut batch, (0..8).map(|position| row(config.mask, position, 8)).collect(), &table);
    }
    let candidates = run(&mut executor, &batch).unwrap();
    let confident: Vec<_> = candidates.iter().map(|it| it.probability >= 0.9).collect();
    let segment = [true, true, false, false, false, false, false, false];
    assert_eq!(confident, [segment, segment].concat());
    assert!(candidates.iter().all(|it| it.token != config.mask && it.token != config.stop_token));
}

#[test]
fn a_script_replies_by_the_turns_of_the_conversation() {
    let script = Script { turn_end: 4, replies: [(1, vec![9, 10, 11]), (3, vec![12])].into() };
    let scripted = |script| SimConfig { script, ..config() };
    let executor = SimExecutor::new(scripted(Some(script.clone()))).unwrap();
    let reply = |prompt: &[u32]| executor.hidden_text(prompt, 500);
    assert_eq!(reply(&[9, 4, 8]), [9, 10, 11, 1]);
    assert_eq!(reply(&[9, 4, 9, 10, 11, 4, 20, 4, 8]), [12, 1]);
    let plain = SimExecutor::new(scripted(None)).unwrap();
    assert_eq!(reply(&[9, 8]), plain.hidden_text(&[9, 8], 500));
    let mut decoder = Decoder::new(&[9, 4, 8], 40, 8, pages(0..64));
    let mut executor = SimExecutor::new(scripted(Some(script.clone()))).unwrap();
    decoder.finish(&mut executor);
    assert_eq!(decoder.output(), [9, 10, 11, 1]);
    for token in [0, 1, 4, 10_000] {
        let mut wrong = script.clone();
        wrong.replies.insert(7, vec![token]);
        let error = SimExecutor::new(scripted(Some(wrong))).unwrap_err();
        assert_eq!(error.key, "script.replies");
    }
}
