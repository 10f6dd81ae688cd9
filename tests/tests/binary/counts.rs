//! Cost and accuracy of decoders on the goldens' checkpoint: a change of a decoder or
//! of its settings that costs more than before fails here.

use asynclane_tests::golden;
use problems::{Split, Task, generate};

use crate::blocks::{answers, serve};

const PROBLEMS: usize = 30;
/// Sums of another processor round otherwise, which moves a few commits.
const TOLERANCE: f64 = 0.02;

/// Forward passes and query positions per committed token, and strictly right answers of 30.
const EXPECTED: [(&str, Task, f64, f64, usize); 9] = [
    ("fast_dllm_dual", Task::Sums, 0.304, 20.2, 17),
    ("asynclane", Task::Sums, 0.258, 13.0, 13),
    ("balanced", Task::Sums, 0.292, 7.4, 16),
    ("fast_dllm_dual", Task::Snippets, 0.172, 18.4, 12),
    ("asynclane", Task::Snippets, 0.163, 8.6, 16),
    ("balanced", Task::Snippets, 0.201, 5.8, 17),
    ("fast_dllm_dual", Task::Lists, 0.056, 11.8, 28),
    ("asynclane", Task::Lists, 0.057, 3.9, 28),
    ("balanced", Task::Lists, 0.074, 3.0, 28),
];

#[test]
fn decoders_cost_no_more_than_before() {
    let checkpoint = golden::checkpoint();
    let server = serve(&["--model", checkpoint.to_str().expect("UTF-8")]);
    let mut worse = Vec::new();
    for (decoder, task, forwards, positions, right) in EXPECTED {
        let problems = generate(task, Split::Eval, 1, PROBLEMS);
        let found = answers(&server, &problems, decoder, |_| 256, 4);
        let each = |sum: u64| sum as f64 / found.tokens as f64;
        let (passes, rows) = (each(found.forwards), each(found.positions));
        let limit = 1.0 + TOLERANCE;
        if passes > forwards * limit || rows > positions * limit || found.right + 1 < right {
            worse.push(format!("{decoder}, {task}: {passes:.3} {rows:.1} {}", found.right));
        }
    }
    assert!(worse.is_empty(), "forward passes and positions per token, right: {worse:#?}");
}
