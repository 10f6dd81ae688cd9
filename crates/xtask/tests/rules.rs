//! Every rule finds its violations, and accepts what only looks like one.

use std::path::Path;

use asynclane_xtask::imports::{circles, imports};
use asynclane_xtask::rules::dependencies::{Edge, Graph, check_graph, walls_of};
use asynclane_xtask::rules::paths::{check_document, known};
use asynclane_xtask::rules::supply::{Package, Policy, check_lock, check_packages};
use asynclane_xtask::rules::{budgets, doctests, layout, source};
use asynclane_xtask::syntax::Syntax;
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
fn functions_are_measured() {
    let text = concat!(
        "fn none() {}\n",
        "pub fn two<F: Fn(u32, u32) -> Vec<u32>>(\n    f: F,\n    map: Map<u32, (u8, u8)>,\n) {\n}\n",
        "trait T {\n    fn receiver(&self, (a, _): (u8, &[u8]), b: &(u8, (u8, u8))) -> fn(u8);\n}\n",
        "impl T for U {\n    fn fixed(&self, [a, b]: [u8; 2]) {}\n}\n",
        "#[cfg(test)]\nmod tests {\n    fn hidden(a: u8) {}\n}\n",
    );
    let functions = Syntax::parse(text).expect("Rust").functions().into_iter();
    let functions: Vec<_> = functions
        .map(|it| (it.name, it.line, it.lines, [it.parameters, it.arguments]))
        .collect();
    let expected = [
        ("none", 1, 1, [0, 0]),
        ("two", 2, 5, [2, 2]),
        ("receiver", 8, 1, [3, 6]),
        ("fixed", 11, 1, [2, 3]),
    ];
    let expected =
        expected.map(|(name, line, lines, counts)| (name.to_owned(), line, lines, counts));
    assert_eq!(functions, expected);
}

#[test]
fn file_budgets_leave_tests_out() {
    let check = |path: &str, text: &str| budgets::check(&[File::new(path, text)]).len();
    let long = "//\n".repeat(601);
    assert_eq!(check("crates/a/src/lib.rs", &long), 1);
    assert_eq!(check("crates/a/src/lib.rs", &long[3..]), 0);
    assert_eq!(check("crates/a/tests/a.rs", &long), 0);
    assert_eq!(check("crates/a/src/tests.rs", &long), 0);
    let tests = format!("use x;\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(check("crates/a/src/lib.rs", &tests), 0);
    assert_eq!(check("crates/model/src/arch/a.rs", &"//\n".repeat(151)), 1);
    assert_eq!(check("crates/model/src/arch/a.rs", &"//\n".repeat(150)), 0);
}

#[test]
fn the_members_of_a_tuple_are_arguments() {
    let check = |text: &str| in_file("a.rs", &format!("//! A.\n{text}\n"));
    // Clippy counts parameters.
    assert_eq!(check("fn f(a: A, b: B, c: C, d: D, e: E, f: F) {}"), []);
    assert_eq!(check("fn f(a: A, b: B, c: C, (d, e): (D, E)) {}"), []);
    for bundled in ["(d, e, f): (D, E, F)", "d: &(D, E, F)", "[d, e, f]: [D; 3]"] {
        let text = format!("fn f(a: A, b: B, c: C, {bundled}) {{}}");
        assert_eq!(check(&text), [("bundles", 2)], "{bundled}");
        assert_eq!(
            check(&format!("impl<A: Fn(u8)> Op<A> for B {{ {text} }}")),
            []
        );
        assert_eq!(check(&format!("#[test]\n{text}")), []);
    }
}

#[test]
fn a_file_that_does_not_parse_is_a_problem() {
    assert_eq!(in_file("a.rs", "//! A.\nfn f() {\n"), [("syntax", 2)]);
    assert_eq!(in_file("a.rs", "//! A.\n\nfn 3() {}\n"), [("syntax", 3)]);
}

#[test]
fn every_file_says_its_concept_first() {
    assert_eq!(in_file("a.rs", "//! A concept.\n"), []);
    for text in ["", "//!\n", "use a;\n", "\n//! Late.\n", "// No doc.\n"] {
        assert_eq!(in_file("a.rs", text), [("concept", 1)], "{text:?}");
    }
}

#[test]
fn no_test_is_ignored() {
    let text = "//! A.\n// #[ignore]\n#[test]\n#[ignore = \"slow\"]\nfn t() { \"#[ignore]\"; }\n";
    assert_eq!(in_file("tests/a.rs", text), [("ignored", 4)]);
}

#[test]
fn unsafe_and_accelerators_stay_in_kernels() {
    let text = "//! A.\n#[cfg(feature = \"cuda\")]\nfn f() { unsafe { g() } }\n";
    assert_eq!(in_file("crates/kernels/src/a.rs", text), []);
    assert_eq!(
        in_file("crates/text/src/a.rs", text),
        [("accelerator", 2), ("unsafe", 3)]
    );
    let lint =
        "//! A.\n#![expect(unsafe_code, reason = \"\")]\n#[cfg(feature = \"tls\")]\nfn f() {}\n";
    assert_eq!(in_file("crates/text/src/a.rs", lint), []);
    let map = "//! A.\nfn f() { let map = unsafe { map() }; }\n";
    assert_eq!(in_file("crates/model/src/map.rs", map), []);
    let twice = format!("{map}{}", &map[7..]);
    assert_eq!(in_file("crates/model/src/map.rs", &twice), [("unsafe", 3)]);
}

#[test]
fn crates_without_examples_compile_none() {
    let check = |manifest: &str, source: &str| {
        let files = [
            File::new("crates/a/Cargo.toml", manifest),
            File::new("crates/a/src/lib.rs", source),
        ];
        doctests::check(&files)
            .iter()
            .map(|problem| (problem.path.clone(), problem.line))
            .collect::<Vec<_>>()
    };
    let (on, off) = ("[package]\n", "[lib]\ndoctest = false\n");
    let (plain, text) = ("//! A.\n", "//! A.\n//! ```text\n//! x\n//! ```\n");
    let example = "//! A.\n/// ```\n/// a::f();\n/// ```\nfn f() {}\n";
    for none in [plain, text] {
        assert_eq!(check(off, none), []);
        assert_eq!(check(on, none), [("crates/a/Cargo.toml".to_owned(), 0)]);
    }
    assert_eq!(check(on, example), []);
    assert_eq!(check(off, example), [("crates/a/src/lib.rs".to_owned(), 2)]);
}

#[test]
fn documented_crates_deny_missing_docs() {
    let root = "crates/step/src/lib.rs";
    assert_eq!(in_file(root, "//! A.\n"), [("docs", 0)]);
    assert_eq!(in_file(root, "//! A.\n#![deny(missing_docs)]\n"), []);
    assert_eq!(in_file("crates/step/src/a.rs", "//! A.\n"), []);
    assert_eq!(in_file("crates/step/src/main.rs", "//! A.\n"), []);
}

#[test]
fn the_top_of_the_repository_is_known() {
    let names = ["crates", ".ci", "target", "run.log", "notes", "Makefile"].map(str::to_owned);
    let unknown: Vec<_> = layout::top(&names)
        .into_iter()
        .map(|problem| problem.path)
        .collect();
    assert_eq!(unknown, ["notes", "Makefile"]);
}

#[test]
fn folders_of_a_machine_are_named_nowhere() {
    let home = ["/ho", "me/me/x"].concat();
    let text = format!("a\nsee {home}\n{home}\nhttps://example.com{home} frame{home}\n");
    let problems = layout::words(&[File::new("README.md", &text)]);
    assert_eq!(found(&problems), [("words", 2), ("words", 3)]);
    assert_eq!(layout::words(&[File::new("Cargo.lock", &text)]), []);
}

/// The map and the lock file of this repository.
fn map() -> [File; 2] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    ["crates/README.md", "Cargo.lock"].map(|path| {
        let text = std::fs::read_to_string(root.join(path)).expect(path);
        File::new(path, &text)
    })
}

/// The problems of a workspace with every crate of the map and these edges: from, to, whether in
/// tests.
fn workspace(edges: &[(&str, &str, bool)]) -> Vec<String> {
    let walls = walls_of(&map()).expect("the map can be read");
    let package = |name: &str| match walls.contains_key(name) {
        true => format!("asynclane-{name}"),
        false => name.to_owned(),
    };
    let crates = walls.keys().map(|name| (package(name), Vec::new()));
    let mut graph: Graph = crates.collect();
    for &(from, to, in_tests) in edges {
        graph.entry(package(from)).or_default().push(Edge {
            to: package(to),
            in_tests,
        });
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
    for (from, to, in_tests, expected) in broken {
        let problems = workspace(&[(from, to, in_tests)]);
        let expected = format!("`{from}` {expected}");
        assert!(
            problems.iter().any(|line| line.contains(&expected)),
            "{expected}: {problems:?}"
        );
    }
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
fn a_wrong_edit_of_the_map_is_a_problem() {
    let [map, lock] = map();
    let edited = |from: &str, to: &str| {
        assert!(map.text.contains(from), "{from}");
        let map = File::new(&map.path, &map.text.replacen(from, to, 1));
        let lock = File::new(&lock.path, &lock.text);
        let problems = walls_of(&[map, lock]).expect_err(to);
        problems.into_iter().map(|problem| problem.what).collect()
    };
    let expect = |from: &str, to: &str, what: &str| {
        let found: Vec<String> = edited(from, to);
        assert!(found.iter().any(|found| found.contains(what)), "{found:?}");
    };
    expect(
        "| candle, tokio |",
        "| candel, tokio |",
        "`candel`: no crate",
    );
    expect("but `libm` |", "but `libn` |", "no crate has this name");
    expect(
        "`decode ◄ step",
        "`decoder ◄ step",
        "`decoder` is in a chain",
    );
    expect("| `sim` |", "| `step` |", "`step` has two rows");
    expect("| never imports |", "| imports |", "no table under");
}

#[test]
fn the_map_and_the_workspace_name_the_same_crates() {
    let walls = walls_of(&map()).expect("the map can be read");
    let problems = check_graph(&walls, &[("asynclane-new".to_owned(), Vec::new())].into());
    assert_eq!(problems.len(), 1 + walls.len());
    assert!(problems[0].what.contains("`new` has no row"));
}

#[test]
fn every_path_in_a_document_exists() {
    let files = [
        "crates/a/src/b/c.rs",
        "crates/a/README.md",
        "tests/x.json",
        "README.md",
    ];
    let known = known(files.into_iter());
    let check = |document: &str, text: &str| {
        let problems = check_document(document, text, &known).into_iter();
        let problems = problems.map(|problem| (problem.line, problem.what));
        problems.collect::<Vec<_>>()
    };
    let good = "`a/src/b/`, `b/c.rs`, [x](../tests/x.json#y), `{a,tests}/`, [y](https://a/b)\n";
    assert_eq!(check("crates/README.md", good), []);
    assert_eq!(
        check(
            "crates/a/README.md",
            "`src/b`, `c.rs`, `a.b()`, `text/plain`\n"
        ),
        []
    );
    assert_eq!(
        check("README.md", "```sh\n`crates/z`\n```\n`config.json`\n"),
        []
    );
    let missing = |path: &str| vec![(2, format!("`{path}` does not exist"))];
    for (document, path) in [
        ("crates/README.md", "a/src/d.rs"),
        ("crates/README.md", "d.rs"),
        ("crates/a/README.md", "src/d"),
        ("README.md", "tests/y/"),
    ] {
        assert_eq!(check(document, &format!("\n`{path}`\n")), missing(path));
        assert_eq!(check(document, &format!("\n[x]({path})\n")), missing(path));
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
        ("b/d.rs", "pub struct D; fn f() { vec![super::c::C] }"),
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
}

/// A policy with one entry of each kind.
const POLICY: &str = r#"
    [licenses]
    allow = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"]
    exceptions = [{ crate = "roots", allow = ["CDLA-Permissive-2.0"] }]
    [bans]
    deny = [{ crate = "openssl", reason = "TLS is rustls" }]
    skip = [{ crate = "twice", reason = "a and b need theirs" }]
    [sources]
    allow-registry = ["https://example.org/index"]
"#;

#[test]
fn packages_come_from_known_registries_and_are_not_banned() {
    let policy = Policy::parse(POLICY).expect("a policy");
    let check = |source: &str, name: &str| {
        let source = match source {
            "" => String::new(),
            source => format!("source = {source:?}\n"),
        };
        let lock = format!("[[package]]\nname = {name:?}\nversion = \"1.0.0\"\n{source}");
        let problems = check_lock(&policy, &lock).expect("TOML").into_iter();
        problems.map(|problem| problem.what).collect::<Vec<_>>()
    };
    assert_eq!(check("", "ours"), [""; 0]);
    assert_eq!(check("registry+https://example.org/index", "a"), [""; 0]);
    for source in [
        "registry+https://example.org/index2",
        "git+https://example.org/index",
        "https://example.org/index",
    ] {
        assert_eq!(check(source, "a"), [format!("`a` comes from {source}")]);
    }
    assert_eq!(check("", "openssl"), ["`openssl` is banned: TLS is rustls"]);
}

#[test]
fn licences_are_allowed_and_duplicates_named() {
    let policy = Policy::parse(POLICY).expect("a policy");
    let package = |name: &str, license: &str| Package {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        license: (!license.is_empty()).then(|| license.to_owned()),
        in_tests: false,
    };
    let check = |more: &[Package]| {
        let known = ["twice", "twice"].map(|name| package(name, "MIT"));
        let roots = [package("roots", "CDLA-Permissive-2.0")];
        let problems = check_packages(&policy, &[&known[..], &roots, more].concat());
        let problems = problems.into_iter().map(|problem| problem.what);
        problems.collect::<Vec<_>>()
    };
    for allowed in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/MIT",
        "GPL-3.0 / MIT",
        "MIT AND Zlib",
        "(MIT OR GPL-3.0) AND Zlib",
        "(GPL-3.0 AND Zlib) OR MIT",
        "GPL-3.0 AND BSL-1.0 OR MIT",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
    ] {
        assert_eq!(check(&[package("a", allowed)]), [""; 0], "{allowed}");
    }
    for refused in [
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MIT AND (GPL-3.0 OR BSL-1.0)",
        "(MIT OR Zlib) AND GPL-3.0",
        "Apache-2.0",
        "MIT WITH LLVM-exception",
        "CDLA-Permissive-2.0",
        "(MIT",
        "MIT Zlib",
        "AND",
    ] {
        let expected = format!("`a` is under {refused}");
        assert_eq!(check(&[package("a", refused)]), [expected]);
    }
    assert_eq!(check(&[package("a", "")]), ["`a` is under no licence"]);
    let twice = ["a", "a"].map(|name| package(name, "MIT"));
    assert_eq!(check(&twice), ["`a` has versions 1.0.0, 1.0.0"]);
    let in_tests = twice.map(|package| Package {
        in_tests: true,
        ..package
    });
    assert_eq!(check(&in_tests), [""; 0]);
    let idle = check_packages(&policy, &[]).into_iter();
    let idle: Vec<_> = idle.map(|problem| problem.what).collect();
    let expected = [
        "`twice` has one version: remove it from `skip`",
        "`roots` is not built: remove its exception",
    ];
    assert_eq!(idle, expected);
}
