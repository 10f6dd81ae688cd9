//! Damaged texts that the two grades refuse, one kind of damage per case.

use asynclane_problems::{Grade, Problem, Split, Task, generate, grade, is_strict};

fn graded(prompt: &str, output: &str) -> Grade {
    let problem = Problem::from_prompt(prompt).expect("a known prompt");
    grade(&problem, output).expect("python3 runs")
}

fn end_only(prompt: &str, output: &str) {
    assert_eq!(graded(prompt, output), Grade { end: true, strict: false }, "{output}");
}

fn wrong(prompt: &str, output: &str) {
    assert_eq!(graded(prompt, output), Grade { end: false, strict: false }, "{output}");
}

fn right(prompt: &str, output: &str) {
    assert_eq!(graded(prompt, output), Grade { end: true, strict: true }, "{output}");
}

/// A conversation without its end.
const CALL: &str = "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add_numbers\",\"parameters\":\
                    {\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\
                    \"integer\"}},\"required\":[\"a\",\"b\"]}}}],\"messages\":[{\"role\":\"user\",\"content\":\
                    \"What is 12 plus 5?\"}";
const MONEY: &str = "Ben has 15.5 dollars. Then he loses 3 dollars. Next he gets 4 more dollars. \
                     How many dollars does Ben have now?";
const HALF: &str = "Mia has 4 bags with 3 eggs in each. Then she sells half of the eggs. \
                    How many eggs does Mia have now?";
const LOOP: &str = "Complete the function.\ndef run(xs):\n    \"\"\"Use a loop. Keep the odd \
                    numbers in xs, square each and return the sorted list.\"\"\"\n";
const LIST: &str = "Complete the function.\ndef run(xs):\n    \"\"\"Use one list. Keep the small \
                    numbers in xs, negate each and return the sum.\"\"\"\n";
const BRANCH: &str = "Complete the function.\ndef solve(x, y):\n    \"\"\"Add 6 to x, if it is \
                      above 4 then multiply by 8 else subtract 5, and return it plus y.\"\"\"\n";
const DICT: &str = "Complete the function.\ndef calc(a, b):\n    \"\"\"Return a dict with max, \
                    last of a and b.\"\"\"\n";
const SORT: &str = "Sort the list 7, 0, 2.";

#[test]
fn every_wording_of_a_sum_is_strict() {
    let starts = ["Ben starts with 15.5", "At first Ben has 15.5", "Ben has 15.5"];
    let ends = ["", " The answer is 16.5 dollars.", " So in the end Ben has 16.5 dollars."];
    let first = [
        "he has 15.5 - 3 = 12.5 dollars left",
        "he loses 3, so he has 15.5 - 3 = 12.5 dollars",
        "15.5 - 3 = 12.5, so he has 12.5 dollars left",
    ];
    let second = [
        "he has 12.5 + 4 = 16.5 dollars",
        "he gets 4 more, so now he has 12.5 + 4 = 16.5 dollars",
        "12.5 + 4 = 16.5, so now he has 16.5 dollars",
    ];
    for (index, start) in starts.into_iter().enumerate() {
        let start = format!("{start} dollars{}.", if index == 2 { " at first" } else { "" });
        for end in ends {
            for first in first {
                for second in second {
                    right(MONEY, &format!("{start} Then {first}. Next {second}.{end}\n#### 16.5"));
                }
            }
        }
    }
    let boxes = "There are 4 bags with 3 eggs each, so Mia starts with 4 * 3 = 12 eggs. Then she";
    right(HALF, &format!("{boxes} keeps half, which is 12 / 2 = 6 eggs.\n#### 6"));
    right(HALF, &format!("{boxes} has 12 / 2 = 6 eggs left.\n#### 6"));
}

#[test]
fn a_sum_with_a_damaged_text_may_end_right_but_is_not_strict() {
    let good = "Ben starts with 15.5 dollars. Then he loses 3, so he has 15.5 - 3 = 12.5 dollars. \
                Next 12.5 + 4 = 16.5, so now he has 16.5 dollars.\n#### 16.5";
    right(MONEY, good);
    let damages = [
        ("he loses 3, so", "he loses., so"),
        ("now he has 16.5", "now he hase5"),
        ("16.5 dollars.\n", "16.5 dolla\n"),
        ("Ben starts", "Ben Ben starts"),
        ("12.5 dollars.", "12.5 dollars dollars."),
        ("15.5 - 3", "12.5 - 3"),
        ("= 12.5 dollars", "= 11.5 dollars"),
        ("loses 3", "loses 4"),
        ("loses 3", "sells 3"),
        ("Next ", "Then "),
        ("Ben starts", "Tom starts"),
        (", so now he", ", so now she"),
        ("Next 12.5 + 4 = 16.5, so now he has 16.5 dollars.", ""),
        ("dollars.\n", "dollars left.\n"),
        (" 16.5 dollars.\n", " 16.50 dollars.\n"),
        ("\n#### 16.5", "\n#### 16.5 16"),
        ("\n#### 16.5", "\n#### 16.5\n"),
        ("\n####", " ####"),
        ("\n#### 16.5", " The answer is 12.5 dollars.\n#### 16.5"),
    ];
    for (before, after) in damages {
        assert!(good.contains(before), "{before}");
        end_only(MONEY, &good.replacen(before, after, 1));
    }
}

#[test]
fn a_sum_with_a_wrong_end_is_wrong() {
    let text = "Ben starts with 15.5 dollars. Then he has 15.5 - 3 = 12.5 dollars left. Next he \
                has 12.5 + 4 = 16.5 dollars.\n";
    for end in ["#### 16", "#### 165", "#### has.5", "#### 1 6.5", "16.5", "####", "", "#### 6.5"] {
        wrong(MONEY, &format!("{text}{end}"));
    }
    wrong(MONEY, "\u{fffd}#### \u{0661}6.5");
}

#[test]
fn a_list_needs_the_last_list_right_and_strictly_the_first_too() {
    right(SORT, "The list is 7, 0, 2. Sorted it is 0, 2, 7.");
    end_only(SORT, "The list is 7, 0, 0. Sorted it is 0, 2, 7.");
    end_only(SORT, "The list is 7, 0, 2. Sorted it is 0, 2, 7");
    end_only(SORT, "The list is 7, 0, 2. Copied it is 0, 2, 7.");
    wrong(SORT, "The list is 7, 0, 2. Sorted it is 0, 2.");
    wrong(SORT, "The list is 7, 0, 2. Sorted it is 0, 2, 7, 7.");
    wrong(SORT, "The list is 7, 0, 2. Sorted it is 0, 7, 2.");
    wrong(SORT, "The list is 7, 0, 2. Sorted it is 0, 2,, 7.");
    wrong(SORT, "0, 2, 7.");
    wrong(SORT, "");
}

#[test]
fn a_loop_needs_names_that_agree() {
    let good = "    res = []\n    for n in xs:\n        if n % 2 == 1:\n            u = n * n\n            \
                res.append(u)\n    return sorted(res)";
    right(LOOP, good);
    right(LOOP, &good.replace("res", "out").replace("u = ", "w = ").replace("(u)", "(w)"));
    for (before, after) in [
        ("u = n * n", "u = v * n"),
        ("append(u)", "append(w)"),
        ("sorted(res)", "sorted(out)"),
        ("sorted(res)", "res"),
        ("== 1", "== 0"),
        ("n * n", "n * 2"),
        ("        if n % 2 == 1:\n", ""),
        ("    return", "        return"),
        ("append(u)", ".append(u)"),
        ("= []", "="),
        ("return sorted(res)", "return sorted(res"),
    ] {
        assert!(good.contains(before), "{before}");
        wrong(LOOP, &good.replacen(before, after, 1));
    }
    end_only(LOOP, &good.replace("2 == 1", "2== 1"));
    end_only(LOOP, &format!("{good}\n"));
    end_only(LOOP, &good.replace("u = ", "q = ").replace("(u)", "(q)"));
    end_only(LOOP, "    return sorted([n * n for n in xs if n % 2 == 1])");
    end_only(LOOP, &good.replace("    return", "    u = 1\n    return"));
}

#[test]
fn a_snippet_in_the_other_style_is_right_in_the_end_only() {
    right(
        LIST,
        "    out = [\n        -t\n        for t in xs\n        if t < 10\n    ]\n    return sum(out)",
    );
    end_only(
        LIST,
        "    out = []\n    for t in xs:\n        if t < 10:\n            w = -t\n            \
         out.append(w)\n    return sum(out)",
    );
    wrong(
        LIST,
        "    out = [\n        -t\n        for t in xs\n        if v < 10\n    ]\n    return sum(out)",
    );
}

#[test]
fn a_condition_is_tried_on_both_sides_and_at_the_limit() {
    let good = "    r = x + 6\n    if r > 4:\n        r = r * 8\n    else:\n        r = r - 5\n    \
                return r + y";
    right(BRANCH, good);
    right(BRANCH, &good.replace("r = ", "z = ").replace("r ", "z "));
    wrong(BRANCH, &good.replace("> 4", ">= 4"));
    wrong(BRANCH, &good.replace("> 4", "> 5"));
    wrong(BRANCH, &good.replace("- 5", "- 4"));
    wrong(BRANCH, &good.replace(" + y", ""));
    wrong(BRANCH, &good.replace("    else:\n        r = r - 5\n", ""));
}

#[test]
fn a_dictionary_needs_every_key_with_its_value() {
    right(DICT, "    return {\n        \"max\": max(a, b),\n        \"last\": b,\n    }");
    end_only(DICT, "    return {\n        \"last\": b,\n        \"max\": max(a, b),\n    }");
    wrong(DICT, "    return {\n        \"max\": max(a, b),\n    }");
    wrong(DICT, "    return {\n        \"max\": a,\n        \"last\": b,\n    }");
    wrong(
        DICT,
        "    return {\n        \"max\": max(a, b),\n        \"last\": b,\n        \"sum\": a,\n    }",
    );
}

#[test]
fn a_call_needs_the_name_and_the_arguments() {
    let prompt = CALL.to_owned() + "]}";
    let good = "<tool_call>\n{\"name\": \"add_numbers\", \"arguments\": {\"a\": 12, \"b\": 5}}\n\
                </tool_call>";
    right(&prompt, good);
    end_only(&prompt, &good.replace("\n", " "));
    end_only(&prompt, &good.replace("{\"a\": 12, \"b\": 5}", "{\"b\": 5, \"a\": 12}"));
    wrong(&prompt, &good.replace("add_numbers", "add"));
    wrong(&prompt, &good.replace("12", "\"12\""));
    wrong(&prompt, &good.replace("12", "13"));
    wrong(&prompt, &good.replace(", \"b\": 5", ""));
    wrong(&prompt, &good.replace("\"b\": 5", "\"b\": 5, \"c\": 6"));
    wrong(&prompt, &good.replace("}}", "}"));
    wrong(&prompt, &good.replace("</tool_call>", ""));
    wrong(&prompt, &(good.to_owned() + good));
    wrong(&prompt, "12 + 5 = 17. The answer is 17.\n#### 17");
}

/// The last result is read, not computed.
#[test]
fn after_a_call_its_result_is_the_answer() {
    let called = "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":\
                  \"function\",\"function\":{\"name\":\"add_numbers\",\"arguments\":\
                  \"{\\\"a\\\": 12, \\\"b\\\": 5}\"}}]}";
    let result = "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"250\"}";
    let prompt = format!("{CALL},{called},{result}]}}");
    right(&prompt, "The answer is 250.\n#### 250");
    end_only(&prompt, "250.\n#### 250");
    wrong(&prompt, "The answer is 17.\n#### 17");
    wrong(&prompt, "The answer is 250.");
    wrong(&prompt, "<tool_call>The answer is 250.\n#### 250");
    let wrapped = prompt.replace("\"250\"", "\"{\\\"result\\\": 2.5}\"");
    right(&wrapped, "The answer is 2.5.\n#### 2.5");
    let free = CALL.replace("add_numbers", "divide") + "]}";
    right(&free, "12 + 5 = 17. The answer is 17.\n#### 17");
    wrong(&free, "12 + 5 = 17. The answer is 17.\n#### 18");
    wrong(&free, "<tool_call>\n#### 17");
}

/// Where no function fits, one that hands over is called, and whoever takes over answers.
#[test]
fn a_question_is_handed_over_and_answered_then() {
    let prompt = CALL.replace("add_numbers", "divide");
    let handing = "{\"type\":\"function\",\"function\":{\"name\":\"transfer_to_other\",\"parameters\":\
                   {\"type\":\"object\",\"properties\":{},\"required\":[]}}}],\"messages\"";
    let prompt = prompt.replace("],\"messages\"", &format!(",{handing}"));
    let call = "<tool_call>\n{\"name\": \"transfer_to_other\", \"arguments\": {}}\n</tool_call>";
    right(&(prompt.clone() + "]}"), call);
    wrong(&(prompt.clone() + "]}"), "12 + 5 = 17. The answer is 17.\n#### 17");
    let called = "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":\
                  \"function\",\"function\":{\"name\":\"transfer_to_other\",\"arguments\":\"{}\"}}]}";
    let result = "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\
                  \"{\\\"assistant\\\": \\\"other\\\"}\"}";
    let prompt = format!("{prompt},{called},{result}]}}");
    right(&prompt, "12 + 5 = 17. The answer is 17.\n#### 17");
    wrong(&prompt, call);
}

/// Cuts, doubled characters and swapped neighbours at every place of every family's answers: the
/// grader neither panics nor calls a changed text strict unless it is another valid wording.
#[test]
fn no_small_damage_stays_strict() {
    for task in Task::EVERY.into_iter() {
        for problem in generate(task, Split::Eval, 21, 60) {
            let answer = &problem.answer;
            for (index, character) in answer.char_indices() {
                let (before, after) = answer.split_at(index);
                assert!(!is_strict(&problem, before), "{before:?}");
                let doubled = format!("{before}{character}{after}");
                assert!(!is_strict(&problem, &doubled), "{doubled:?}");
                let dropped = format!("{before}{}", &after[character.len_utf8()..]);
                assert!(!is_strict(&problem, &dropped), "{dropped:?}");
            }
        }
    }
}
