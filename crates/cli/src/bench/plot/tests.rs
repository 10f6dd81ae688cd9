//! The drawing is XML and shows every decoder.

use super::super::report::{Entry, Setup, TaskReport};
use super::*;

fn entry(index: usize, name: &str) -> Entry {
    Entry {
        name: name.to_owned(),
        label: ["asynclane+threshold+fused", "block_wise+top_k+none"][index % 2].to_owned(),
        end: 90.0 - index as f64,
        strict: 80.0 - 2.0 * index as f64,
        agreement: None,
        nfe_per_token: 0.5,
        positions_per_token: 10.0,
        tokens: 100,
        tps: 50.0,
        ratio: 1.0 + index as f64,
        ..Entry::default()
    }
}

fn report(names: &[&str]) -> Report {
    let rows = names.iter().enumerate();
    Report {
        setup: Setup {
            command: "asynclane bench --decoders \"vanilla all\"".to_owned(),
            machine: "m & n <o>".to_owned(),
            problems: 6,
            ..Setup::default()
        },
        tasks: vec![TaskReport {
            task: "sums".to_owned(),
            decoders: rows.map(|(index, name)| entry(index, name)).collect(),
        }],
    }
}

/// The texts between tags, escapes undone; fails where tags do not nest, an attribute is not
/// quoted, or a bare `&` or `>` stands in a text.
fn texts(xml: &str) -> Vec<(String, String)> {
    let mut open: Vec<String> = Vec::new();
    let mut texts = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        let content = &rest[..at];
        assert!(!content.contains('>'), "a bare > in {content:?}");
        for (at, _) in content.match_indices('&') {
            let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
            assert!(
                known.iter().any(|name| content[at..].starts_with(name)),
                "{content:?}"
            );
        }
        if let Some(tag) = open.last() {
            let plain = content.replace("&lt;", "<").replace("&gt;", ">");
            texts.push((
                tag.clone(),
                plain.replace("&quot;", "\"").replace("&amp;", "&"),
            ));
        }
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        let name = tag
            .trim_matches('/')
            .split([' ', '/'])
            .next()
            .expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
        } else {
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if !tag.ends_with('/') {
                open.push(name.to_owned());
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} stay open");
    assert_eq!(rest.trim(), "");
    texts
}

#[test]
fn the_drawing_is_balanced_and_names_every_decoder() {
    let names = [
        "vanilla",
        "balanced",
        "commit=top_k",
        "a<b&\"c\"",
        "balanced,fork=off",
    ];
    let drawing = svg(&report(&names));
    let texts = texts(&drawing);
    let shown = |name: &str| {
        texts
            .iter()
            .any(|(tag, text)| tag == "text" && text == name)
    };
    for name in names {
        assert!(shown(name), "{name} in {drawing}");
    }
    for tag in ["title", "desc"] {
        assert!(
            texts
                .iter()
                .any(|(name, text)| name == tag && !text.is_empty())
        );
    }
    assert!(shown("1x") && shown("80"), "ticks");
}

#[test]
fn the_front_joins_the_points_that_none_beats() {
    let mut report = report(&["vanilla", "good", "beaten"]);
    let rows = &mut report.tasks[0].decoders;
    (rows[0].strict, rows[0].ratio) = (80.0, 1.0);
    (rows[1].strict, rows[1].ratio) = (70.0, 10.0);
    (rows[2].strict, rows[2].ratio) = (60.0, 5.0);
    let drawing = svg(&report);
    let line = drawing
        .lines()
        .find(|line| line.starts_with("<polyline"))
        .unwrap();
    let path = line.split('"').nth(1).unwrap();
    // From 1x at 80 %, the upper left corner, to 10x in the middle of 60..80 %, the right edge.
    let middle = TOP + HEIGHT / 2.0;
    assert_eq!(path, format!("{LEFT:.1},{TOP:.1} {RIGHT:.1},{middle:.1}"));
}

#[test]
fn odd_figures_are_drawn_inside() {
    let mut report = report(&["vanilla", "b"]);
    report.tasks[0].decoders[0].ratio = 0.0;
    report.tasks[0].decoders[1].strict = 0.0;
    let drawing = svg(&report);
    texts(&drawing);
    assert!(
        !drawing.contains("NaN") && !drawing.contains("inf"),
        "{drawing}"
    );
}
