//! The rule `learned_filter`: the filter of the demo model, and one from a file.

use asynclane_tests::process::{refusal, run, stderr, stdout, utf8};
use problems::grade;

use crate::{folder, sum};

const LEARNED: &str = "schedule=block_wise,commit=learned_filter,cache=dual";

/// The answer to the sum with a decoder, and the number of forward passes.
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
    let path = |name: &str| utf8(&folder.join(name)).to_owned();
    let [filter, model, gone] = ["filter", "model.safetensors", "gone"].map(path);
    // Two linear layers of zeros for blocks of 8, in f32.
    let shapes = [
        ("0.weight", vec![4, 8]),
        ("0.bias", vec![4]),
        ("2.weight", vec![8, 4]),
        ("2.bias", vec![8]),
    ];
    let zeros = [0u8; 4 * 32];
    let tensors = shapes.map(|(name, shape)| {
        let bytes = &zeros[..4 * shape.iter().product::<usize>()];
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, bytes);
        (name, view.unwrap())
    });
    std::fs::write(&filter, safetensors::serialize(tensors, None).unwrap()).unwrap();
    let demo = demo::checkpoint::DEMO.file("model.safetensors");
    std::fs::write(&model, demo.unwrap()).unwrap();
    let short = format!("{LEARNED},block_length=8");
    answer(&["--decoder", &short, "--filter", &filter]);
    for (decoder, file, code, expected) in [
        (LEARNED, &filter, 78, "model.decoder: block_length: must be 8"),
        (&short, &model, 65, "model.safetensors: 0.weight"),
        (&short, &gone, 66, "gone: not found in"),
    ] {
        let prompt = sum().prompt;
        let output = run(&["generate", &prompt, "--decoder", decoder, "--filter", file]);
        let message = refusal(&output, code);
        assert!(message.contains(expected), "{message}");
    }
}
