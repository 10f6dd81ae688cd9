//! Every rule finds what it is there to find, and leaves alone what only looks like it.

use asynclane_xtask::rules::dependencies::{Edge, Graph, WALLS, check_graph};
use asynclane_xtask::rules::{budgets, layout, source};
use asynclane_xtask::source::Source;
use asynclane_xtask::{File, Problem};

/// The rules and lines of problems.
fn found(problems: &[Problem]) -> Vec<(&'static str, usize)> {
    problems
        .iter()
        .map(|problem| (problem.rule, problem.line))
        .collect()
}

fn in_file(path: &str, text: &str) -> Vec<(&'static str, usize)> {
    found(&source::check(&[File::new(path, text)]))
}

#[test]
fn comments_and_literals_are_blanked_in_place() {
    let text = concat!(
        "let a = \"x // { \\\" y\"; // } c\n",
        "/* { /* } */ { */ let b = '{'; let c = '\\''; let d: &'static str = r#\"\"}\"#;\n",
        "let é = b\"{\"; let r#fn = '→';\n",
    );
    let code = Source::scan(text).code;
    assert_eq!(code.len(), text.len());
    assert!(!code.contains(['{', '}', '"', 'x', 'y', '→']), "{code}");
    for kept in [
        "let a =",
        "let b =",
        "let c =",
        "&'static str =",
        "let é =",
        "let r#fn =",
    ] {
        assert!(code.contains(kept), "{kept}: {code}");
    }
    assert_eq!(code.lines().count(), 3);
}

#[test]
fn functions_are_measured() {
    let text = concat!(
        "fn none() {}\n",
        "pub fn two<F: Fn(u32, u32) -> Vec<u32>>(\n    f: F,\n    map: Map<u32, (u8, u8)>,\n) {\n}\n",
        "trait T {\n    fn receiver(&self, x: [u8; 2]) -> fn(u8, u8);\n}\n",
        "#[cfg(test)]\nmod tests {\n    fn hidden(a: u8) {}\n}\n",
    );
    let measured = Source::scan(text).functions().into_iter();
    let measured: Vec<_> = measured
        .map(|it| (it.name, it.line, it.lines, it.arguments))
        .collect();
    let expected = [("none", 1, 1, 0), ("two", 2, 5, 2), ("receiver", 8, 1, 2)];
    let expected =
        expected.map(|(name, line, lines, arguments)| (name.to_owned(), line, lines, arguments));
    assert_eq!(measured, expected);
}

#[test]
fn budgets_leave_tests_out() {
    let check = |path: &str, text: &str| budgets::check(&[File::new(path, text)]).len();
    let long = "x\n".repeat(601);
    assert_eq!(check("crates/a/src/lib.rs", &long), 1);
    assert_eq!(check("crates/a/src/lib.rs", &long[2..]), 0);
    assert_eq!(check("crates/a/tests/a.rs", &long), 0);
    assert_eq!(check("crates/a/src/tests.rs", &long), 0);
    let tests = format!("x\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(check("crates/a/src/lib.rs", &tests), 0);
    assert_eq!(check("crates/model/src/arch/a.rs", &"x\n".repeat(151)), 1);
    assert_eq!(check("crates/model/src/arch/a.rs", &"x\n".repeat(150)), 0);
    let body = |lines| format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines));
    assert_eq!(check("crates/a/src/lib.rs", &body(69)), 1);
    assert_eq!(check("crates/a/src/lib.rs", &body(68)), 0);
    assert_eq!(
        check("a.rs", "fn f(a: A, b: B, c: C, d: D, e: E, f: F) {}"),
        1
    );
    assert_eq!(check("a.rs", "fn f(a: A, b: B, c: C, d: D, e: E,) {}"), 0);
    let six = "{ fn f(a: A, b: B, c: C, d: D, e: E, f: F) {} }";
    assert_eq!(
        check("a.rs", &format!("impl<T: Fn(u8)> Op<T> for A {six}")),
        0
    );
    assert_eq!(
        check("a.rs", &format!("impl<T: for<'a> Fn(&'a u8)> A<T> {six}")),
        1
    );
}

#[test]
fn every_file_says_its_concept_first() {
    assert_eq!(in_file("a.rs", "//! A concept.\n"), []);
    for text in ["", "//!\n", "use a;\n", "\n//! Late.\n", "// No doc.\n"] {
        assert_eq!(in_file("a.rs", text), [("concept", 1)], "{text:?}");
    }
}

#[test]
fn unwrap_is_for_tests() {
    let text = concat!(
        "//! A `.unwrap()`.\n",
        "fn f() { a.unwrap(); b.unwrap_or(0); }\n",
        "#[test]\nfn t() { a.unwrap(); }\n",
        "#[cfg(test)]\nmod tests { fn f() { a.unwrap() } }\n",
        "fn g() { \".unwrap()\"; }\n",
    );
    assert_eq!(in_file("crates/a/src/lib.rs", text), [("unwrap", 2)]);
    assert_eq!(in_file("tests/a.rs", text), []);
}

#[test]
fn nothing_is_left_unfinished_or_silenced_without_a_reason() {
    let text = concat!(
        "//! A.\n",
        "fn f() { todo!() }\n",
        "fn g() { dbg!(1); my_todo!() }\n",
        "#[test]\n#[ignore]\nfn t() {}\n",
        "#[allow(dead_code)]\nfn h() { unimplemented!() }\n",
        "#[expect(dead_code)]\nfn i() {}\n",
        "#[expect(dead_code, reason = \"a table\")]\nfn j() {}\n",
    );
    let mut found = in_file("tests/a.rs", text);
    found.sort_by_key(|found| found.1);
    let unfinished = [2, 3, 5, 7, 8].map(|line| ("unfinished", line));
    assert_eq!(found[..5], unfinished);
    assert_eq!(found[5..], [("reasons", 9)]);
}

#[test]
fn unsafe_and_accelerators_stay_in_kernels() {
    let text = "//! A.\n#[cfg(feature = \"cuda\")]\nfn f() { unsafe { g() } }\n";
    assert_eq!(in_file("crates/kernels/src/lib.rs", text), []);
    assert_eq!(
        in_file("crates/text/src/lib.rs", text),
        [("accelerator", 2), ("unsafe", 3)]
    );
    let lint =
        "//! A.\n#![expect(unsafe_code, reason = \"\")]\n#[cfg(feature = \"tls\")]\nfn f() {}\n";
    assert_eq!(in_file("crates/text/src/lib.rs", lint), []);
    let map = "//! A.\n// SAFETY: nobody writes the file.\nlet map = unsafe { map() };\n";
    assert_eq!(in_file("crates/model/src/map.rs", map), []);
    assert_eq!(
        in_file("crates/model/src/map.rs", &map.replace("SAFETY", "OK")),
        [("unsafe", 3)]
    );
    let twice = format!("{map}{}", &map[7..]);
    assert_eq!(in_file("crates/model/src/map.rs", &twice), [("unsafe", 5)]);
}

#[test]
fn the_core_denies_missing_docs() {
    let text = "//! A.\n";
    assert_eq!(in_file("crates/step/src/lib.rs", text), [("docs", 0)]);
    assert_eq!(
        in_file("crates/step/src/lib.rs", "//! A.\n#![deny(missing_docs)]\n"),
        []
    );
    assert_eq!(in_file("crates/text/src/lib.rs", text), []);
}

#[test]
fn the_top_of_the_repository_is_known() {
    let names = [
        "crates", ".ci", "target", "run.log", "docs", "vendor", "Makefile",
    ]
    .map(str::to_owned);
    let strange: Vec<_> = layout::top(&names)
        .into_iter()
        .map(|problem| problem.path)
        .collect();
    assert_eq!(strange, ["vendor", "Makefile"]);
}

#[test]
fn folders_of_a_machine_are_named_nowhere() {
    let home = ["/ho", "me/me/x"].concat();
    let text = format!("a\nsee {home}\n{home}\nhttps://example.com{home} frame{home}\n");
    let problems = layout::words(&[File::new("README.md", &text)]);
    assert_eq!(found(&problems), [("words", 2), ("words", 3)]);
    assert_eq!(layout::words(&[File::new("Cargo.lock", &text)]), []);
}

/// A workspace with every crate of the table, and these edges: from, to, whether in tests.
fn workspace(edges: &[(&str, &str, bool)]) -> Vec<String> {
    let package = |name: &str| {
        let ours = WALLS.iter().any(|wall| wall.krate == name);
        if ours {
            format!("asynclane-{name}")
        } else {
            name.to_owned()
        }
    };
    let mut graph: Graph = WALLS
        .iter()
        .map(|wall| (package(wall.krate), Vec::new()))
        .collect();
    for &(from, to, in_tests) in edges {
        graph.entry(package(from)).or_default().push(Edge {
            to: package(to),
            in_tests,
        });
    }
    check_graph(WALLS, &graph)
        .into_iter()
        .map(|problem| problem.to_string())
        .collect()
}

#[test]
fn walls_between_crates_hold() {
    let allowed = [
        ("engine", "decode", false),
        ("engine", "tokio", false),
        ("engine", "sim", true),
    ];
    assert_eq!(workspace(&allowed), [""; 0]);
    let broken = [
        ("engine", "model", false, "`engine` must not import `model`"),
        ("engine", "text", true, "`engine` must not import `text`"),
        ("demo", "decode", false, "`demo` must not import `decode`"),
        (
            "decode",
            "smallvec",
            false,
            "`decode` must not reach `smallvec`",
        ),
        (
            "step",
            "candle-core",
            false,
            "`step` must not reach `candle-core`",
        ),
        (
            "model",
            "tokio-util",
            false,
            "`model` must not reach `tokio-util`",
        ),
    ];
    for (from, to, in_tests, expected) in broken {
        let problems = workspace(&[(from, to, in_tests)]);
        assert!(
            problems.iter().any(|line| line.contains(expected)),
            "{expected}: {problems:?}"
        );
    }
    assert_eq!(workspace(&[("decode", "proptest", true)]), [""; 0]);
    assert_eq!(workspace(&[("decode", "libm", false)]), [""; 0]);
}

#[test]
fn walls_hold_over_crates_of_ours_in_between() {
    let problems = workspace(&[("server", "text", false), ("text", "candle-core", false)]);
    let expected = "`server` must not reach `asynclane-text > candle-core`";
    assert!(
        problems.iter().any(|line| line.contains(expected)),
        "{problems:?}"
    );
}

#[test]
fn the_table_and_the_workspace_name_the_same_crates() {
    let problems = check_graph(WALLS, &[("asynclane-new".to_owned(), Vec::new())].into());
    assert_eq!(problems.len(), 1 + WALLS.len());
    assert!(problems[0].what.contains("not in the table"));
}
