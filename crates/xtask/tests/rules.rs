//! Every rule finds its violations, and accepts what only looks like one.

use std::path::Path;

use asynclane_xtask::imports::{circles, imports, siblings};
use asynclane_xtask::rules::dependencies::{Dependency, Graph, check_graph, walls_of};
use asynclane_xtask::rules::paths::{check_document, known};
use asynclane_xtask::rules::{budgets, names, source, verify};
use asynclane_xtask::syntax::Syntax;
use asynclane_xtask::{File, Problem};

#[test]
fn the_repository_keeps_its_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let problems = verify(&root).expect("the repository can be read");
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} problems\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn functions_are_measured() {
    let text = concat!(
        "fn none() {}\n",
        "pub fn two<F: Fn(u32, u32) -> Vec<u32>>(\n    f: F,\n    map: Map<u32, (u8, u8)>,\n) {\n}\n",
        "trait T {\n    fn open(&self);\n    fn closed(&self) {\n    }\n}\n",
        "impl T for U {\n    fn open(&self) {\n    }\n}\n",
        "#[cfg(test)]\nmod tests {\n    fn hidden(a: u8) {}\n}\n",
    );
    let functions = Syntax::parse(text).expect("Rust").functions().into_iter();
    let functions: Vec<_> = functions.map(|it| (it.name, it.line, it.lines)).collect();
    let expected = [("none", 1, 1), ("two", 2, 5), ("closed", 9, 2), ("open", 13, 2)];
    assert_eq!(functions, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
}

#[test]
fn budgets_leave_tests_out() {
    let check = |path: &str, text: &str| budgets::check(&[File::new(path, text)]).len();
    let long = "//\n".repeat(501);
    let body = "//\n".repeat(69);
    for (path, text, problems) in [
        ("crates/a/src/lib.rs", long.clone(), 1),
        ("tests/lab/a/src/lib.rs", long.clone(), 1),
        ("crates/a/src/lib.rs", long[3..].to_owned(), 0),
        ("crates/a/tests/a.rs", long.clone(), 0),
        ("crates/a/src/tests.rs", long.clone(), 0),
        ("tests/lab/a/tests/a.rs", long.clone(), 0),
        ("crates/a/src/lib.rs", format!("#[cfg(test)]\nmod tests {{\n{long}}}\n"), 0),
        ("crates/model/src/arch/a.rs", "//\n".repeat(151), 1),
        ("crates/model/src/arch/a.rs", "//\n".repeat(150), 0),
        ("crates/a/src/lib.rs", format!("fn f() {{\n{body}}}\n"), 1),
        ("crates/a/src/lib.rs", format!("fn f() {{\n{}}}\n", &body[3..]), 0),
    ] {
        assert_eq!(check(path, &text), problems, "{path} of {} bytes", text.len());
    }
}

/// The rules and lines of problems.
fn found(problems: &[Problem]) -> Vec<(&'static str, usize)> {
    problems.iter().map(|problem| (problem.rule, problem.line)).collect()
}

fn in_file(path: &str, text: &str) -> Vec<(&'static str, usize)> {
    found(&source::check(&[File::new(path, text)]))
}

#[test]
fn sources_keep_their_rules() {
    let cuda = "//! A.\n#[cfg(feature = \"cuda\")]\nfn f() { unsafe { g() } }\n";
    let lint =
        "//! A.\n#![expect(unsafe_code, reason = \"\")]\n#[cfg(feature = \"tls\")]\nfn f() {}\n";
    let map = "//! A.\nfn f() { let map = unsafe { map() }; }\n";
    let twice = format!("{map}{}", &map[7..]);
    let ignored = "//! A.\n// #[ignore]\n#[ignore = \"slow\"]\nfn t() { \"#[ignore]\"; }\n";
    for (path, text, expected) in [
        ("a.rs", "//! A.\nfn f() {\n", &[("syntax", 2)][..]),
        ("a.rs", "//! A.\n\nfn 3() {}\n", &[("syntax", 3)]),
        ("a.rs", "//! A concept.\n", &[]),
        ("a.rs", "", &[("concept", 1)]),
        ("a.rs", "//!\n", &[("concept", 1)]),
        ("a.rs", "\n//! Late.\n", &[("concept", 1)]),
        ("a.rs", "// No doc.\n", &[("concept", 1)]),
        ("tests/a.rs", ignored, &[("ignored", 3)]),
        ("crates/step/src/lib.rs", "//! A.\n", &[("docs", 0)]),
        ("crates/step/src/lib.rs", "//! A.\n#![deny(missing_docs)]\n", &[]),
        ("crates/step/src/a.rs", "//! A.\n", &[]),
        ("crates/kernels/src/a.rs", cuda, &[]),
        ("tests/lab/cuda/src/a.rs", cuda, &[]),
        ("crates/text/src/a.rs", cuda, &[("accelerator", 2), ("unsafe", 3)]),
        ("crates/text/src/a.rs", lint, &[]),
        ("crates/model/src/map.rs", map, &[]),
        ("crates/model/src/map.rs", &twice, &[("unsafe", 3)]),
    ] {
        assert_eq!(in_file(path, text), expected, "{path}: {text}");
    }
}

#[test]
fn variables_have_names_of_things() {
    for (text, expected) in [
        ("fn f(at: u8) { let of = 1; }", &[1, 1][..]),
        ("fn f() { for (row, to) in g() { h(|on| on) } }", &[1, 1]),
        ("struct A { on: u8 }\nenum B { C { of: u8 } }\ntrait T { fn f(to: u8); }", &[1, 2, 3]),
        ("fn f() { if let Some(at) = g()\n&& let A { of, .. } = h() {} }", &[1, 2]),
        ("fn f() { match g() {\nA { row: to } | B(to) => {} } }", &[2]),
        ("fn f() { assert!(g(|at|\nat), \"{on}\"); vec![1; 2]; }", &[1]),
        ("fn f() { matches!(g(),\nSome(of) if of) }", &[]),
        ("fn f() { select! {\nrow = g(|at| at) => { let mut of = 1; } } }", &[2, 2]),
        ("macro_rules! m { ($a:ty) => {\nfn f(on: $a, to::A: u8) {} } }", &[2]),
        ("fn at(offset: u8) { x.of.to(1); a::on(); on(); A::to { .. } }", &[]),
    ] {
        let problems = names::check(&[File::new("a.rs", text)]);
        let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, expected, "{text}");
    }
}

#[test]
fn folders_of_a_machine_are_named_nowhere() {
    let home = ["/ho", "me/me/x"].concat();
    let text = format!("a\nsee {home}\n{home}\nhttps://example.com{home} frame{home}\n");
    let problems = source::check(&[File::new("README.md", &text)]);
    assert_eq!(found(&problems), [("words", 2), ("words", 3)]);
    assert_eq!(found(&source::check(&[File::new("Cargo.lock", &text)])), []);
}

/// The map and the lock file of this repository.
fn map() -> [File; 2] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    ["crates/README.md", "Cargo.lock"].map(|path| {
        let text = std::fs::read_to_string(root.join(path)).expect(path);
        File::new(path, &text)
    })
}

/// The problems of a workspace with every crate of the map and these dependencies: from, to, true in tests.
fn workspace(dependencies: &[(&str, &str, bool)]) -> Vec<String> {
    let walls = walls_of(&map()).expect("the map can be read");
    let package = |name: &str| match walls.contains_key(name) || name == "lab" {
        true => format!("asynclane-{name}"),
        false => name.to_owned(),
    };
    let crates = walls.keys().map(|name| (package(name), Vec::new()));
    let mut graph: Graph = crates.collect();
    for &(importer, imported, in_tests) in dependencies {
        let name = package(imported);
        graph.entry(package(importer)).or_default().push(Dependency { name, in_tests });
    }
    let problems = check_graph(&walls, &graph).into_iter();
    problems.map(|problem| problem.to_string()).collect()
}

#[test]
fn walls_between_crates_hold() {
    let allowed = [
        ("engine", "decode", false),
        ("engine", "tokio", false),
        ("engine", "sim", true),
        ("model", "step", false),
        ("cli", "server", false),
        ("decode", "libm", false),
        ("decode", "proptest", true),
    ];
    assert_eq!(workspace(&allowed), [""; 0]);
    let broken = [
        ("cli", "lab", false, "must not import `lab`"),
        ("cli", "sim", false, "must not import `sim`"),
        ("engine", "model", false, "must not import `model`"),
        ("engine", "text", true, "must not import `text`"),
        ("engine", "sim", false, "must not import `sim`"),
        ("engine", "serde_json", false, "must not reach `serde_json`"),
        ("model", "decode", false, "must not import `decode`"),
        ("server", "model", false, "must not import `model`"),
        ("demo", "decode", false, "must not import `decode`"),
        ("decode", "rand", false, "must not reach `rand`"),
        ("step", "candle-core", false, "must not reach `candle-core`"),
        ("sim", "tokio", false, "must not reach `tokio`"),
        ("text", "axum", false, "must not reach `axum`"),
        ("model", "tokio-util", false, "must not reach `tokio-util`"),
    ];
    for (importer, imported, in_tests, expected) in broken {
        let problems = workspace(&[(importer, imported, in_tests)]);
        let expected = format!("`{importer}` {expected}");
        assert!(problems.iter().any(|line| line.contains(&expected)), "{expected}: {problems:?}");
    }
    let problems = workspace(&[("server", "text", false), ("text", "candle-core", false)]);
    let expected = "`server` must not reach `asynclane-text > candle-core`";
    assert!(problems.iter().any(|line| line.contains(expected)), "{problems:?}");
}

#[test]
fn a_wrong_edit_of_the_map_is_a_problem() {
    let [map, lock] = map();
    let expect = |before: &str, after: &str, message: &str| {
        assert!(map.text.contains(before), "{before}");
        let map = File::new(&map.path, &map.text.replacen(before, after, 1));
        let lock = File::new(&lock.path, &lock.text);
        let problems = walls_of(&[map, lock]).expect_err(after);
        assert!(problems.iter().any(|found| found.message.contains(message)), "{problems:?}");
    };
    expect("| candle, tokio |", "| candel, tokio |", "`candel`: no crate");
    expect("but `libm` |", "but `libn` |", "`libn`: no crate has this name");
    expect("| decode, step |", "| decoder, step |", "`decoder`: no crate");
    expect("| `sim` |", "| `step` |", "`step` has two rows");
    expect("| never reaches |", "| never |", "no table under");
}

#[test]
fn the_map_and_the_workspace_name_the_same_crates() {
    let walls = walls_of(&map()).expect("the map can be read");
    let problems = check_graph(&walls, &[("asynclane-new".to_owned(), Vec::new())].into());
    assert_eq!(problems.len(), 1 + walls.len());
    assert!(problems[0].message.contains("`new` has no row"));
}

#[test]
fn every_path_in_a_document_exists() {
    let files = ["crates/a/src/b/c.rs", "crates/a/README.md", "tests/x.json", "README.md"];
    let known = known(files.into_iter());
    let check = |text: &str| {
        let problems = check_document("crates/README.md", text, &known).into_iter();
        problems.map(|problem| (problem.line, problem.message)).collect::<Vec<_>>()
    };
    for good in [
        "`a/src/b/`, `b/c.rs`, `{a,tests}/`, `c.rs`, `../a/README.md`\n",
        "`a.b()`, `text/plain`, `/v1/x/`, `--a/b.rs`, `FOLDER/NAME.json`, `config.json`, `a b/c.rs`\n",
        "```sh\n`crates/z.rs`\n```\n",
    ] {
        assert_eq!(check(good), [], "{good}");
    }
    for path in ["a/src/d.rs", "d.rs", "src/d/", "tests/y/", "a/README.rs", "rc/b/c.rs"] {
        assert_eq!(check(&format!("\n`{path}`\n")), [(2, format!("`{path}` does not exist"))]);
    }
}

#[test]
fn circles_among_files_are_found() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use a::A; pub use b::c::C;"),
        (
            "a.rs",
            "use crate::C; use crate::b::Arc; pub struct A; #[cfg(test)] mod tests { use crate::b::D; }",
        ),
        ("b.rs", "pub mod c; pub mod d; pub use std::sync::Arc;"),
        ("b/c.rs", "use super::d; pub struct C(d::D);"),
        ("b/d.rs", "pub struct D; fn f() { super::c::C }"),
    ];
    let file = |(path, text): (&str, &str)| File::new(&format!("crates/x/src/{path}"), text);
    let found = |files: &[File]| {
        let circles = circles(&imports(files)).into_iter();
        let circles = circles.map(|circle| (circle.files.join(" "), circle.is_within_a_folder()));
        circles.collect::<Vec<_>>()
    };
    let within = ("crates/x/src/b/c.rs crates/x/src/b/d.rs".to_owned(), true);
    assert_eq!(found(&files.map(file)), [within]);
    let mut across = files;
    across[4].1 = "pub struct D(crate::A);";
    let all = "crates/x/src/a.rs crates/x/src/b/c.rs crates/x/src/b/d.rs";
    assert_eq!(found(&across.map(file)), [(all.to_owned(), false)]);
    // A module and its part import each other.
    let mut parent = files;
    parent[2].1 = "pub mod c; pub mod d; use c::C; pub use std::sync::Arc; pub struct B;";
    parent[3].1 = "use super::B; pub struct C;";
    parent[4].1 = "pub struct D;";
    let imports = imports(&parent.map(file));
    assert_eq!(circles(&imports).len(), 1);
    assert_eq!(circles(&siblings(&imports)), []);
}
