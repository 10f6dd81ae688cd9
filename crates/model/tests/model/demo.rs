//! The goldens' checkpoint, compared with recorded steps of a reference implementation.

use crate::common::{DEMO, execute, row, single};
use asynclane_model::{Checkpoint, ExecutorConfig, Files, Model, ModelExecutor};
use serde_json::Value;
use step::Executor;

/// Offsets of the reference's first lane, which commits at threshold 0.9.
const LANE: usize = 32;

fn executor() -> ModelExecutor {
    let model = Model::load(Checkpoint::open(&Files::folder(DEMO)).unwrap()).unwrap();
    assert_eq!(model.warnings(), [] as [String; 0]);
    let config = ExecutorConfig { page_size: 16, pages: 64, threads: None };
    ModelExecutor::new(model, config).unwrap()
}

#[test]
fn first_steps_commit_what_the_reference_commits() {
    let cases: Value = serde_json::from_str(include_str!("fixtures/demo-steps.json")).unwrap();
    let mut executor = executor();
    let mask = executor.spec().mask.unwrap();
    let mut compared = 0;
    for case in cases.as_array().unwrap() {
        let ids = |v: &Value| serde_json::from_value::<Vec<u32>>(v.clone()).unwrap();
        let mut canvas = ids(&case["prompt_ids"]);
        let start = canvas.len();
        canvas.resize(start + 128, mask);
        let table: Vec<u32> = (0..16).collect();
        let mut written = 0;
        for step in case["steps"].as_array().unwrap() {
            let range = ids(&step["rows"]);
            written = written.max(range[1]);
            let rows = (range[0]..range[1]).map(|i| row(canvas[i as usize], i, written));
            let batch = single(rows.collect(), &table);
            let candidates = execute(&mut executor, &batch).candidates;
            let candidate = |offset: usize| &candidates[start + offset - range[0] as usize];
            let commits: Vec<(usize, u32, f64)> =
                serde_json::from_value(step["commits"].clone()).unwrap();
            for (offset, token, want) in &commits {
                let got = candidate(*offset);
                assert_eq!(got.token, *token, "offset {offset}");
                // Recorded with five digits.
                let off = (got.probability - want).abs();
                assert!(off < 1.5e-5, "{got:?} for {want}");
                compared += 1;
            }
            for offset in 0..LANE {
                let sure = canvas[start + offset] == mask && candidate(offset).probability >= 0.9;
                let committed = commits.iter().any(|commit| commit.0 == offset);
                assert!(!sure || committed, "offset {offset} is not committed");
            }
            for (offset, token, _) in commits {
                canvas[start + offset] = token;
            }
        }
    }
    assert!(compared > 60, "only {compared} commits compared");
}

#[test]
fn its_info_matches_its_configuration() {
    let executor = executor();
    let info = executor.model().info();
    assert_eq!((info.family, info.layers, info.width, info.heads.num_heads), ("llada", 6, 192, 6));
    assert_eq!(
        (info.vocabulary.mask, info.vocabulary.end.as_slice(), info.max_positions),
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
