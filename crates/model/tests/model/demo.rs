//! The goldens' checkpoint, compared with recorded steps of a reference implementation.

use crate::common::{execute, push, row};
use asynclane_model::{Checkpoint, ExecutorConfig, Files, Model, ModelExecutor};
use serde_json::Value;
use step::{Batch, Executor, Sampling};

/// Offsets of the reference's first lane, which commits at threshold 0.9.
const LANE: u64 = 32;

fn executor() -> ModelExecutor {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/goldens/checkpoint"
    );
    let model = Model::load(Checkpoint::open(&Files::folder(folder)).unwrap()).unwrap();
    assert_eq!(model.warnings(), [] as [String; 0]);
    let config = ExecutorConfig {
        page_size: 16,
        pages: 64,
        threads: None,
    };
    ModelExecutor::new(model, config).unwrap()
}

#[test]
fn first_steps_commit_what_the_reference_commits() {
    let cases: Value = serde_json::from_str(include_str!("fixtures/demo-steps.json")).unwrap();
    let mut executor = executor();
    let mask = executor.spec().mask.unwrap();
    let mut compared = 0;
    for case in cases.as_array().unwrap() {
        let ids = |v: &Value| -> Vec<u64> {
            v.as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_u64().unwrap())
                .collect()
        };
        let prompt = ids(&case["prompt_ids"]);
        let mut canvas: Vec<u32> = prompt.iter().map(|&id| id as u32).collect();
        canvas.resize(prompt.len() + 128, mask);
        let table: Vec<u32> = (0..16).collect();
        let mut written = 0;
        for step in case["steps"].as_array().unwrap() {
            let range = ids(&step["rows"]);
            let (from, to) = (range[0] as usize, range[1] as usize);
            written = written.max(to);
            let rows = (from..to)
                .map(|i| row(canvas[i], i as u32, written as u32))
                .collect::<Vec<_>>();
            let mut batch = Batch::default();
            push(&mut batch, rows, &table, Sampling::GREEDY);
            let candidates = execute(&mut executor, &batch).candidates;
            let commits = step["commits"].as_array().unwrap();
            let mut committed = Vec::new();
            for commit in commits {
                let (offset, token) = (commit[0].as_u64().unwrap(), commit[1].as_u64().unwrap());
                let position = prompt.len() + offset as usize;
                let got = &candidates[position - from];
                assert_eq!(u64::from(got.token), token, "offset {offset}");
                let want = commit[2].as_f64().unwrap();
                // Recorded with five digits.
                assert!(
                    (got.probability - want).abs() < 1.5e-5,
                    "{} for {want}",
                    got.probability
                );
                committed.push(offset);
                compared += 1;
            }
            for offset in 0..LANE {
                let position = prompt.len() + offset as usize;
                let sure = candidates[position - from].probability >= 0.9;
                if canvas[position] == mask && sure {
                    assert!(
                        committed.contains(&offset),
                        "offset {offset} is not committed"
                    );
                }
            }
            for commit in commits {
                let position = prompt.len() + commit[0].as_u64().unwrap() as usize;
                canvas[position] = commit[1].as_u64().unwrap() as u32;
            }
        }
    }
    assert!(compared > 60, "only {compared} commits compared");
}

#[test]
fn its_info_matches_its_configuration() {
    let executor = executor();
    let info = executor.model().info();
    assert_eq!(
        (info.family, info.layers, info.width, info.heads.num_heads),
        ("llada", 6, 192, 6)
    );
    assert_eq!(
        (
            info.vocabulary.mask,
            info.vocabulary.end.as_slice(),
            info.max_positions
        ),
        (Some(5), &[1][..], 1024)
    );
    assert_eq!(info.kv_bytes_per_position(), 2 * 6 * 192 * 4);
    let matrices = 6 * (4 * 192 * 192 + 3 * 192 * 512) + 2 * 1024 * 192;
    assert_eq!(info.parameters, matrices + 13 * 192);
    assert_eq!(
        info.describe(),
        "llada, 3.05 M parameters: 6 layers of width 192, 6 heads (6 key/value) of 32, MLP 512; \
         vocabulary 1024, 1024 positions, 9216 KV bytes each; mask 5, end [1]"
    );
}
