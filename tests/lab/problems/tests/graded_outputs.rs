//! Outputs that decoders really gave, each judged beforehand: the grader must agree with all.

use asynclane_problems::{Problem, Task, grade};
use serde_json::Value;

fn graded() -> Vec<Value> {
    serde_json::from_str(include_str!("data/graded.json")).expect("the file is a JSON array")
}

#[test]
fn every_recorded_prompt_is_read_and_its_answer_is_strictly_right() {
    let rows = graded();
    assert_eq!(rows.len(), 48);
    for row in rows {
        let problem =
            Problem::from_prompt(row["prompt"].as_str().unwrap()).expect("a known prompt");
        assert_eq!(problem.task.name(), row["task"]);
        let grade = grade(&problem, row["answer"].as_str().unwrap()).expect("python3 runs");
        assert!(grade.end && grade.strict, "{row}");
    }
}

#[test]
fn the_end_of_every_recorded_output_is_judged_as_recorded() {
    let mut runs = 0;
    let mut disagreements = Vec::new();
    for row in graded() {
        let problem =
            Problem::from_prompt(row["prompt"].as_str().unwrap()).expect("a known prompt");
        for output in row["outputs"].as_array().unwrap() {
            let text = output["text"].as_str().unwrap();
            if grade(&problem, text).expect("python3 runs").end
                != output["correct"].as_bool().unwrap()
            {
                disagreements.push(text.to_owned());
            }
            runs += output["runs"].as_u64().unwrap();
        }
    }
    assert_eq!(runs, 48 * 12);
    assert_eq!(disagreements, Vec::<String>::new());
}

#[test]
fn strict_is_stricter_than_the_end_on_real_outputs() {
    let (mut ends, mut stricts) = ([0; 3], [0; 3]);
    for row in graded() {
        let problem =
            Problem::from_prompt(row["prompt"].as_str().unwrap()).expect("a known prompt");
        let family = Task::ALL.iter().position(|task| *task == problem.task).unwrap();
        for output in row["outputs"].as_array().unwrap() {
            let (grade, runs) = (
                grade(&problem, output["text"].as_str().unwrap()).expect("python3 runs"),
                output["runs"].as_u64().unwrap(),
            );
            assert!(grade.end || !grade.strict, "{output}");
            ends[family] += runs * u64::from(grade.end);
            stricts[family] += runs * u64::from(grade.strict);
        }
    }
    // Twelve runs each of 24 sums, 16 snippets and 8 lists.
    assert_eq!((ends, stricts), ([245, 94, 96], [137, 87, 96]));
}
