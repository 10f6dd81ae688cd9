//! The README's table of metrics equals a scrape.

use std::collections::BTreeMap;

use crate::common::server;

/// A metric as an exposition describes it.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    /// Values by label, in the order of their series.
    labels: BTreeMap<String, Vec<String>>,
}

/// Every metric by name.
fn families(exposition: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut name = String::new();
    for line in exposition.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (of, help) = rest.split_once(' ').unwrap();
            name = of.to_owned();
            families.entry(name.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (_, kind) = rest.split_once(' ').unwrap();
            families.get_mut(&name).unwrap().kind = kind.to_owned();
        } else {
            let labels = line
                .split_once('{')
                .and_then(|(_, rest)| rest.rsplit_once('}'));
            let of = &mut families.get_mut(&name).unwrap().labels;
            for pair in labels.unwrap_or_default().0.split(',') {
                let (label, value) = pair.split_once('=').unwrap();
                let values = of.entry(label.to_owned()).or_default();
                let value = value.trim_matches('"').to_owned();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
    }
    families
}

/// Labels with their values; labels that depend on the machine have none.
fn labels(name: &str, family: &Family) -> String {
    let own = family
        .labels
        .iter()
        .filter(|(label, _)| !["model_name", "le"].contains(&&***label));
    let texts = own.map(|(label, values)| match name.ends_with("_info") {
        true => format!("`{label}`"),
        false => format!("`{label}`: {}", values.join(", ")),
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn table(exposition: &str) -> String {
    let all = families(exposition);
    let mut text = "| metric | type | labels | vLLM's name | meaning |\n".to_owned();
    text.push_str("|---|---|---|---|---|\n");
    for (name, family) in all.iter().filter(|(name, _)| !name.starts_with("vllm:")) {
        let copies = all
            .iter()
            .filter(|(other, copy)| *other != name && copy.help == family.help);
        let copies: Vec<_> = copies.map(|(other, _)| format!("`{other}`")).collect();
        assert!(
            copies.len() <= 1,
            "two metrics mean the same: {name}, {copies:?}"
        );
        let row = [
            format!("`{name}`"),
            family.kind.clone(),
            labels(name, family),
            copies.join(", "),
            family.help.clone(),
        ];
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

#[tokio::test]
async fn the_readme_lists_every_metric() {
    let expected = table(&server().metrics().await);
    let readme = include_str!("../../README.md");
    let start = readme
        .find("| metric | type |")
        .expect("the README has the table");
    let rows = readme[start..].split_inclusive('\n');
    let found: String = rows.take_while(|row| row.starts_with('|')).collect();
    assert_eq!(
        found, expected,
        "the table of metrics shall be\n\n{expected}"
    );
}
