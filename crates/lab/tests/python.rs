//! The interpreter: Python's results on the subset, errors beyond it, limits on everything.

use asynclane_lab::problems::{Problem, Split, Task, generate};
use asynclane_lab::python::{Fault, Function, Value};

fn run(body: &str, arguments: &[(&str, Value)]) -> Result<Value, Fault> {
    let (names, values): (Vec<&str>, Vec<Value>) = arguments.iter().cloned().unzip();
    Function::parse(&names, body)?.call(&values)
}

fn ints(items: &[i64]) -> Value {
    Value::list(items.iter().map(|item| Value::Int(*item)))
}

#[track_caller]
fn gives(expression: &str, expected: Value) {
    let found = run(
        &format!("    return {expression}"),
        &[("xs", ints(&[3, -1, 4, 1, -5]))],
    );
    assert_eq!(found, Ok(expected), "{expression}");
}

#[track_caller]
fn syntax(body: &str) {
    assert!(
        matches!(run(body, &[("x", Value::Int(1))]), Err(Fault::Syntax(_))),
        "{body:?}"
    );
}

#[track_caller]
fn runtime(body: &str) {
    assert!(
        matches!(run(body, &[("x", Value::Int(1))]), Err(Fault::Runtime(_))),
        "{body:?}"
    );
}

#[test]
fn operators_follow_python() {
    gives("7 // 2", Value::Int(3));
    gives("-7 // 2", Value::Int(-4));
    gives("7 // -2", Value::Int(-4));
    gives("-3 % 2", Value::Int(1));
    gives("3 % -2", Value::Int(-1));
    gives("-2 ** 2", Value::Int(-4));
    gives("2 ** 3 ** 2", Value::Int(512));
    gives("2 + 3 * 4 - 6 / 4", Value::Float(12.5));
    gives("6 / 2", Value::Int(3));
    gives("- -3", Value::Int(3));
    gives("(2 + 3) * 4", Value::Int(20));
    gives("1 < 2 < 3", Value::Bool(true));
    gives("1 < 2 > 3", Value::Bool(false));
    gives("1 if xs else 2", Value::Int(1));
    gives("not 0 and 5 or 7", Value::Int(5));
    gives("4 in xs and 9 not in xs", Value::Bool(true));
    gives("True + 1", Value::Int(2));
    gives("'a' + \"b\"", Value::Str("ab".to_owned()));
    gives("9% 2==1", Value::Bool(true));
}

#[test]
fn containers_and_functions_follow_python() {
    gives("sorted(xs)", ints(&[-5, -1, 1, 3, 4]));
    gives("xs[::-1]", ints(&[-5, 1, 4, -1, 3]));
    gives("xs[1:3]", ints(&[-1, 4]));
    gives("xs[-2:]", ints(&[1, -5]));
    gives("xs[:-9:-2]", ints(&[-5, 4, 3]));
    gives("xs[5:]", ints(&[]));
    gives("xs[-1]", Value::Int(-5));
    gives(
        "[sum(xs), len(xs), min(xs), max(xs), max(2, 8)]",
        ints(&[2, 5, -5, 4, 8]),
    );
    gives("sum(v * v for v in xs if v > 0 if v < 4)", Value::Int(10));
    gives("list(reversed(range(1, 7, 2)))", ints(&[5, 3, 1]));
    gives("[abs(-3), int(2.9)]", ints(&[3, 2]));
    gives("{'a': 1, 'b': 2, 'a': 3}['a']", Value::Int(3));
    gives("{'a': 1, 'b': 2} == {'b': 2.0, 'a': 1}", Value::Bool(true));
    gives("[\n1,\n2,\n]", ints(&[1, 2]));
}

#[test]
fn statements_follow_python() {
    let body = "    res = []\n\n    # comment\n    for v in xs:\n        if v == 4: continue\n        \
                elif v < -4:\n            break\n        else:\n            res.append(v * 2)\n    \
                n = 0\n    while True:\n        n += 1\n        if n >= 3:\n            break\n    \
                res[0] = n\n    return res";
    assert_eq!(
        run(body, &[("xs", ints(&[3, -1, 4, 1, -5, 9]))]),
        Ok(ints(&[3, -2, 2]))
    );
    let body =
        "    d = {}\n    for v in xs:\n        d[v] = d[v] + 1 if v in d else 1\n    return d";
    let counts = Value::dict([
        (Value::Int(2), Value::Int(2)),
        (Value::Int(1), Value::Int(1)),
    ]);
    assert_eq!(run(body, &[("xs", ints(&[2, 1, 2]))]), Ok(counts));
    assert_eq!(run("    pass", &[]), Ok(Value::None));
    assert_eq!(run("    return", &[]), Ok(Value::None));
    let shared = "    a = [1]\n    b = a\n    b.append(2)\n    return a";
    assert_eq!(run(shared, &[]), Ok(ints(&[1, 2])));
}

#[test]
fn a_comprehension_keeps_its_name_to_itself() {
    let body = "    v = 7\n    w = [v for v in xs]\n    return w + [v]";
    assert_eq!(run(body, &[("xs", ints(&[1, 2]))]), Ok(ints(&[1, 2, 7])));
    let leak = "    w = [v for v in xs]\n    return v";
    let fault = run(leak, &[("xs", ints(&[1]))]);
    assert_eq!(fault, Err(Fault::Runtime("v is not defined".to_owned())));
}

#[test]
fn what_python_does_not_parse_is_a_syntax_fault() {
    for body in [
        "",
        "\n",
        "return x",
        "  return x",
        "     return x",
        "    return x\n  return x",
        "    4 = x",
        "    r = x * ",
        "    r = = x",
        "    .append(x)",
        "    return [x",
        "    x]",
        "    return sorted(x",
        "    if x > 1\n        return x",
        "    if x:\n    return x",
        "    for 3 in x:\n        pass",
        "    zz 5",
        "    return \"x",
        "    r === x",
        "    9e5a",
        "    else:\n        return x",
        "    break",
        "    return x\n        return x",
        "    x = 05",
        "    return x # \n    )",
        "    def f(): pass",
        "    in",
        "    return = 3",
        "    f(x) = 3",
        "    \u{e9} = 3",
        "    return {x}",
        "    return x[]",
        "    return x[1:2:3:4]",
        "    (x",
    ] {
        syntax(body);
    }
}

#[test]
fn what_python_raises_is_a_runtime_fault() {
    for body in [
        "    return y",
        "    return x()",
        "    return x[0]",
        "    x[0] = 1",
        "    return sum(x)",
        "    return x + 'a'",
        "    return 1 // 0",
        "    return 1 % 0",
        "    return 1 / 0",
        "    return [1][1]",
        "    return {}[1]",
        "    return x.append(1)",
        "    return sum",
        "    return max([])",
        "    return -'a'",
        "    return [1][::0]",
        "    return 'a' < 1",
        "    for v in x:\n        pass",
        "    return len(1, 2)",
        "    sum = 1\n    return sum([1])",
        "    return [].pop(1, 2, 3)",
        "    return range(1, 2, 0)",
    ] {
        runtime(body);
    }
}

#[test]
fn nothing_runs_or_nests_without_end() {
    let limited = |body: &str| {
        let found = run(body, &[("x", Value::Int(9))]);
        assert!(
            matches!(found, Err(Fault::Limit(_))),
            "{body:.60}: {found:?}"
        );
    };
    limited("    while True:\n        pass");
    limited("    r = x\n    while r:\n        r = r * r");
    limited("    r = [x]\n    for v in r:\n        r = r + r\n    while True:\n        r = r + r");
    limited("    r = []\n    for v in range(999):\n        r = sorted(range(999))");
    limited("    s = 'abc'\n    while True:\n        s = s + s");
    limited("    return 9 ** 99");
    limited("    return range(99999999)");
    limited(&format!(
        "    return {}x{}",
        "(".repeat(5_000),
        ")".repeat(5_000)
    ));
    limited(&format!("    return {}x", "-".repeat(5_000)));
    limited(&format!("    return {}x", "not ".repeat(2_000)));
    limited(&format!("    return x{}", " + x".repeat(2_000)));
    limited(&format!("    return x{}", "[0]".repeat(2_000)));
    limited(&format!("    return {}", "x".repeat(20_000)));
    limited(&format!("    return x{}", " or x".repeat(3_000)));
    let deep: String = (1..200)
        .map(|n| format!("{}if x:\n", " ".repeat(4 * n)))
        .collect();
    assert!(run(&deep, &[("x", Value::Int(1))]).is_err());
}

#[test]
fn no_container_goes_into_another() {
    for body in [
        "    a = [1]\n    a.append(a)",
        "    return [[1]]",
        "    return {'a': []}",
        "    return {[]: 1}",
        "    a = [1]\n    a[0] = a",
        "    return [[] for v in [1]]",
    ] {
        let fault = run(body, &[]);
        assert_eq!(
            fault,
            Err(Fault::Limit("containers in containers")),
            "{body}"
        );
    }
}

/// Every prefix, and every answer with one character replaced, either runs or is a fault.
#[test]
fn damaged_code_never_panics() {
    let replacements = [
        '\n', ' ', '(', ']', '"', '=', ':', 'x', '9', '-', '\u{e9}', '.',
    ];
    for problem in generate(Task::Snippets, Split::Eval, 17, 40) {
        let names: &[&str] = if problem.prompt.contains("(xs)") {
            &["xs"]
        } else {
            &["a", "b"]
        };
        let arguments: Vec<Value> = names.iter().map(|_| ints(&[1, 12, -3])).collect();
        for at in 0..problem.answer.len() {
            let (before, after) = problem.answer.split_at(at);
            for replacement in replacements {
                for text in [
                    before.to_owned(),
                    format!("{before}{replacement}{}", &after[1..]),
                ] {
                    if let Ok(function) = Function::parse(names, &text) {
                        let _result = function.call(&arguments);
                    }
                }
            }
        }
        assert!(Problem::from_prompt(&problem.prompt).is_some());
    }
}
