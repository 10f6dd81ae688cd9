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
    ("balanced", Task::Sums, 0.276, 17.6, 21),
    ("fast_dllm_dual", Task::Snippets, 0.172, 18.4, 12),
    ("asynclane", Task::Snippets, 0.163, 8.6, 16),
    ("balanced", Task::Snippets, 0.180, 12.3, 15),
    ("fast_dllm_dual", Task::Lists, 0.056, 11.8, 28),
    ("asynclane", Task::Lists, 0.057, 3.9, 28),
    ("balanced", Task::Lists, 0.056, 3.3, 28),
];

#[test]
fn decoders_cost_no_more_than_before() {
    let checkpoint = golden::checkpoint();
    let server = serve(&["--model", checkpoint.to_str().expect("UTF-8")]);
    for (decoder, task, forwards, positions, right) in EXPECTED {
        let problems = generate(task, Split::Eval, 1, PROBLEMS);
        let found = answers(&server, &problems, decoder, |_| 256, 4);
        let tokens = found.tokens as f64;
        for (name, sum, expected) in
            [("forwards", found.forwards, forwards), ("positions", found.positions, positions)]
        {
            let each = sum as f64 / tokens;
            let limit = expected * (1.0 + TOLERANCE);
            assert!(each <= limit, "{decoder}, {task}: {each:.3} {name} per token");
        }
        let right = found.right + 1 >= right;
        assert!(right, "{decoder}, {task}: {}", found.right);
    }
}
