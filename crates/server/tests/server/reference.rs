//! The README names every metric of a scrape, and no other.

use std::collections::BTreeSet;

use crate::common::server;

#[tokio::test]
async fn the_readme_names_every_metric() {
    let scrape = server().metrics().await;
    let families = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families = families.filter_map(|line| line.split(' ').next());
    let exported: BTreeSet<&str> = families.filter(|name| !name.starts_with("vllm:")).collect();
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("## Metrics").expect("the section");
    let names = section.split('`').skip(1).step_by(2);
    let is_metric = |name: &&str| name.starts_with("asynclane_") || name.starts_with("process_");
    assert_eq!(names.filter(is_metric).collect::<BTreeSet<_>>(), exported);
}

/// vLLM's name of a metric has the help of ours, and no two of our metrics mean the same.
#[tokio::test]
async fn every_meaning_has_one_metric() {
    let scrape = server().metrics().await;
    let helps = scrape.lines().filter_map(|line| line.strip_prefix("# HELP "));
    let helps: Vec<(&str, &str)> = helps.filter_map(|line| line.split_once(' ')).collect();
    for (name, help) in &helps {
        let others = helps.iter().filter(|(other, text)| other != name && text == help);
        let others: Vec<_> = others.map(|(other, _)| *other).collect();
        let is_copy = |other: &&str| other.starts_with("vllm:") != name.starts_with("vllm:");
        assert!(others.len() <= 1 && others.iter().all(is_copy), "{name}: {others:?}");
    }
}
