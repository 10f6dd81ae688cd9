//! The generator: determinism, reading problems back, and two sets that never meet.

use std::collections::HashSet;

use asynclane_problems::{Problem, Split, Task, drills, generate, is_strict};
use demo::EXAMPLES;

const SPLITS: [Split; 2] = [Split::Train, Split::Eval];

fn every() -> impl Iterator<Item = Task> {
    Task::EVERY.into_iter()
}

#[test]
fn a_seed_means_the_same_problems_and_a_longer_draw_begins_with_the_shorter() {
    for task in every() {
        let long = generate(task, Split::Eval, 3, 50);
        assert_eq!(long[..20], generate(task, Split::Eval, 3, 20));
        assert_ne!(long, generate(task, Split::Eval, 4, 50));
    }
}

#[test]
fn every_generated_answer_is_right_and_its_prompt_reads_back() {
    for task in every() {
        for (seed, split) in SPLITS.into_iter().enumerate() {
            for problem in generate(task, split, seed as u64, 2_000) {
                assert!(is_strict(&problem, &problem.answer), "{problem:?}");
                let read = Problem::from_prompt(&problem.prompt).expect("a generated prompt");
                assert_eq!(read.task, task);
                assert!(is_strict(&read, &problem.answer), "{problem:?}");
                assert!(is_strict(&problem, &read.answer), "{read:?}");
            }
        }
    }
}

#[test]
fn no_evaluation_prompt_is_ever_a_training_prompt() {
    for task in Task::EVERY {
        let evaluation: HashSet<String> =
            generate(task, Split::Eval, 11, 2_000).into_iter().map(|p| p.prompt).collect();
        assert!(evaluation.iter().all(|prompt| Split::of(prompt) == Split::Eval));
        let mut drawn = 0;
        for seed in [1, 11, 12_345] {
            for problem in generate(task, Split::Train, seed, 10_000) {
                assert!(!evaluation.contains(&problem.prompt), "{}", problem.prompt);
                assert_eq!(Split::of(&problem.prompt), Split::Train);
                drawn += 1;
            }
        }
        assert_eq!(drawn, 30_000);
    }
}

#[test]
fn about_one_prompt_in_ten_is_held_out() {
    let held_out = (0..10_000).filter(|n| Split::of(&format!("Copy {n}")) == Split::Eval).count();
    assert!((900..=1_100).contains(&held_out), "{held_out}");
}

#[test]
fn every_wording_occurs() {
    let text: String = Task::ALL
        .into_iter()
        .flat_map(|task| generate(task, Split::Train, 5, 4_000))
        .map(|problem| problem.prompt + &problem.answer)
        .collect();
    let phrases = [
        " starts with ",
        "At first ",
        " at first.",
        " bags with ",
        ", so now she has ",
        " more, so now he has ",
        " left. ",
        ", so he has ",
        " becomes ",
        "keeps half, which is ",
        "sells half of the ",
        "doubles the number of ",
        "triples the number of ",
        ".5 dollars",
        "So in the end ",
        "The answer is ",
        "Later ",
        "Use a loop. Go over xs",
        "Use one list. Keep",
        "the reversed list",
        "the sorted list",
        "the count.",
        "if it is equal to ",
        "% 2 == 1",
        "Return a dict with ",
        " -n\n",
        "Sorted it is ",
        "Reversed it is ",
        "Copied it is ",
    ];
    for phrase in phrases {
        assert!(text.contains(phrase), "{phrase:?} never occurs");
    }
}

#[test]
fn every_kind_of_conversation_occurs() {
    let problems = generate(Task::Calls, Split::Train, 5, 4_000);
    let some = |holds: &dyn Fn(&Problem) -> bool| problems.iter().any(holds);
    let calls = |problem: &Problem| problem.answer.starts_with("<tool_call>\n{\"name\": \"");
    let results = |problem: &Problem| problem.prompt.matches("\"role\":\"tool\"").count();
    let listed = |problem: &Problem| problem.prompt.starts_with("{\"tools\":");
    assert!(some(&|one| calls(one) && results(one) == 0));
    assert!(some(&|one| calls(one) && results(one) == 1));
    assert!(some(&|one| !calls(one) && results(one) == 2));
    let handed = |one: &Problem| one.prompt.contains("{\\\"assistant\\\": \\\"");
    assert!(some(&|one| one.answer.contains("\"transfer_to_")));
    assert!(some(&|one| handed(one) && !listed(one)));
    assert!(some(&|one| handed(one) && listed(one)));
    assert!(some(&|one| !listed(one) && results(one) == 0));
    assert!(some(&|one| !listed(one) && results(one) > 0));
    for answer in
        ["\"}}\n</tool_call>", "The answer is a ", "5.\n#### ", "Sorted it is ", "    return "]
    {
        let found = |one: &Problem| listed(one) && one.answer.contains(answer);
        assert!(some(&found), "{answer:?} never occurs");
    }
}

#[test]
fn a_conversation_in_other_words_is_not_read() {
    let tools = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":\
                 {\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":\
                 {\"type\":\"integer\"}},\"required\":[\"a\",\"b\"]}}}]";
    let messages = "\"messages\":[{\"role\":\"user\",\"content\":\"What is 12 plus 5?\"}]";
    let prompt = format!("{{{tools},{messages}}}");
    let problem = Problem::from_prompt(&prompt).expect("a conversation");
    let call =
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 12, \"b\": 5}}\n</tool_call>";
    assert_eq!(problem.answer, call);
    for free in
        [format!("{{{messages}}}"), prompt.replace("\"name\":\"add\"", "\"name\":\"get_weather\"")]
    {
        let free = Problem::from_prompt(&free).expect("a conversation");
        assert_eq!(free.answer, "12 + 5 = 17. The answer is 17.\n#### 17");
    }
    for other in [
        prompt.replace("12 plus", "012 plus"),
        prompt.replace("12 plus", "1234 plus"),
        prompt.replace("12 plus", "12  plus"),
        prompt.replace("user", "system"),
        prompt.replace(":[{\"role", ": [{\"role"),
        prompt.replace("\"integer\"", "\"array\""),
        prompt.replace("\"required\":[\"a\",\"b\"]", "\"required\":[]"),
        format!("{{{}}}", messages.replace("What is 12 plus 5", "Who is Tom")),
        format!("{{{}}}", messages.replace("What is 12", "Hello, 12")),
        "{\"messages\":[]}".to_owned(),
        "{\"messages\":3}".to_owned(),
        "{}".to_owned(),
    ] {
        assert_eq!(Problem::from_prompt(&other), None, "{other:?}");
    }
}

#[test]
fn a_prompt_in_other_words_is_not_read() {
    let [sum, snippet, list] = EXAMPLES;
    let others = [
        sum.replace("he loses", "she loses"),
        sum.replace("he buys 6 more", "he buys 06 more"),
        sum.replace("does Tom", "does Ana"),
        sum.replace("How many coins", "How many pens"),
        sum.replace("loses 3 coins", "loses 40 coins"),
        sum.replace("Tom has 9 ", "Tom has 99999999999999999999 "),
        format!("{sum} "),
        sum.replace("Next", "Then"),
        snippet.replace("(a, b)", "(a, c)"),
        snippet.replace("subtract b", "subtract c"),
        snippet.trim_end().to_owned(),
        snippet.replace(" 3,", " +3,"),
        list.replace("eggs", "egg"),
        list.replace("Reverse", "Shuffle"),
        String::new(),
        "Hello".to_owned(),
    ];
    for other in others {
        assert_eq!(Problem::from_prompt(&other), None, "{other:?}");
    }
}

#[test]
fn a_long_chain_of_products_is_refused_rather_than_overflown() {
    let doc = |count: usize| {
        let steps = ", then multiply by 99".repeat(count);
        format!(
            "Complete the function.\ndef run(a, b):\n    \"\"\"Start with a{steps} and return \
             it.\"\"\"\n"
        )
    };
    let problem = Problem::from_prompt(&doc(8)).expect("eight products fit");
    assert!(is_strict(&problem, &problem.answer));
    assert_eq!(Problem::from_prompt(&doc(9)), None);
}

#[test]
fn the_examples_are_problems() {
    for (task, prompt) in Task::ALL.into_iter().zip(EXAMPLES) {
        assert_eq!(Problem::from_prompt(prompt).expect("a known prompt").task, task);
    }
}

#[test]
fn words_sort_by_spelling() {
    let problem = Problem::from_prompt("Sort the list pens, eggs, books.").expect("a list");
    assert_eq!(problem.answer, "The list is pens, eggs, books. Sorted it is books, eggs, pens.");
}

#[test]
fn drills_are_true_equations() {
    for drill in drills(9, 500) {
        let asked = drill.prompt.strip_prefix("Compute ").unwrap().strip_suffix('.').unwrap();
        let solved = drill.answer.strip_suffix('.').unwrap();
        let (asked, solved): (Vec<_>, Vec<_>) =
            (asked.split(", ").collect(), solved.split(". ").collect());
        assert_eq!(asked.len(), solved.len());
        for (left, equation) in asked.iter().zip(&solved) {
            let right: i64 =
                equation.strip_prefix(left).unwrap().strip_prefix(" = ").unwrap().parse().unwrap();
            let [a, sign, b] = left.split(' ').collect::<Vec<_>>()[..] else { panic!("{left}") };
            let (a, b): (i64, i64) = (a.parse().unwrap(), b.parse().unwrap());
            let value = match sign {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                _ => a / b,
            };
            assert_eq!(value, right, "{equation}");
            assert!((1..=60).contains(&right), "{equation}");
        }
    }
}

#[test]
fn names_of_tasks_and_splits_round_trip_and_others_are_told_what_is_expected() {
    for task in every() {
        assert_eq!(task.to_string().parse(), Ok(task));
    }
    assert_eq!("eval".parse(), Ok(Split::Eval));
    assert_eq!(
        "sudoku".parse::<Task>().unwrap_err().to_string(),
        "task: expected sums, snippets, lists or calls, found \"sudoku\""
    );
    assert!("test".parse::<Split>().is_err());
}
