//! The rule `learned_filter`: the filter of the demo model, and one from a file.

use asynclane_tests::process::{command, run, stderr, stdout};
use problems::grade;

use crate::{folder, sum};

const LEARNED: &str = "schedule=block_wise,commit=learned_filter,cache=dual";

/// The answer to the sum with a decoder, and its number of forwards.
fn answer(arguments: &[&str]) -> (String, usize) {
    let problem = sum();
    let output = run(&[&["generate", &problem.prompt, "--stats"], arguments].concat());
    let cost = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{cost}");
    let (before, _) = cost.split_once(" forwards").expect("the cost names them");
    let number = before.rsplit([' ', ',']).next().expect("a word");
    (stdout(&output), number.parse().expect("a number"))
}

#[test]
fn the_demo_model_brings_a_filter_that_saves_forwards() {
    let single = "schedule=block_wise,commit=top_k,cache=dual";
    let (_, one_by_one) = answer(&["--decoder", single]);
    let (text, forwards) = answer(&["--decoder", LEARNED]);
    let graded = grade(&sum(), text.trim_end()).expect("no code runs");
    assert!(graded.end, "{text}");
    assert!(2 * forwards < one_by_one, "{forwards} of {one_by_one}");
}

/// A filter of another block length, a file that is no filter, and one that is not there.
#[test]
fn a_filter_from_a_file_is_used_or_refused_by_name() {
    let folder = folder("filters");
    let text = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (filter, model, gone) = (text("filter"), text("model.safetensors"), text("gone"));
    // Two linear layers of zeros for blocks of 8, in f32.
    let shapes = [
        ("0.weight", vec![4, 8]),
        ("0.bias", vec![4]),
        ("2.weight", vec![8, 4]),
        ("2.bias", vec![8]),
    ];
    let zeros = [0u8; 4 * 32];
    let tensors = shapes.into_iter().map(|(name, shape)| {
        let bytes = &zeros[..4 * shape.iter().product::<usize>()];
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, bytes);
        (name, view.expect("the shape fits"))
    });
    let bytes = safetensors::serialize(tensors, None).expect("it is written");
    std::fs::write(&filter, bytes).expect("the folder is writable");
    let demo = demo::checkpoint::DEMO.file("model.safetensors");
    std::fs::write(&model, demo.expect("the demo has weights")).expect("the folder is writable");
    let short = format!("{LEARNED},block_length=8");
    answer(&["--decoder", &short, "--filter", &filter]);
    for (decoder, file, code, expected) in [
        (LEARNED, &filter, 64, "block_length: must be 8"),
        (&short, &model, 65, "model.safetensors: 0.weight"),
        (&short, &gone, 66, "gone: not found in"),
    ] {
        let prompt = sum().prompt;
        let output =
            command(&["generate", &prompt, "--decoder", decoder, "--filter", file]).output();
        let output = output.expect("the binary runs");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(expected), "{message}");
    }
}
