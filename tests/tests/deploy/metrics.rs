//! Dashboard, alerts and autoscaling query existing metrics, and panels show every metric.

use std::collections::BTreeSet;

use asynclane_tests::scrape::Scrape;
use serde_json::Value;

use crate::files::{json, list, parse, text, yaml};
use crate::queries::{Query, known, names, problems};
use crate::served;

const DASHBOARD: &str = "deploy/grafana/asynclane.json";
const ALERTS: &str = "deploy/prometheus/alerts.yml";
const ALERT_TESTS: &str = "deploy/prometheus/alerts-test.yml";
const SCALED_OBJECT: &str = "deploy/kubernetes/autoscaling/scaled-object.yaml";
const PROFILES: &str = "deploy/kubernetes/gateway/profiles.yaml";

/// Exported metrics that no panel shows, by the prefix of their names, with the reason.
const NOT_SHOWN: [(&str, &str); 1] = [("vllm:", "the same figures under vLLM's names")];

/// The names in `{{name}}` and `{{ $labels.name }}`.
fn templated(text: &str) -> Vec<String> {
    let parts = text.split("{{").skip(1);
    let inner = parts.filter_map(|part| part.split_once("}}"));
    let words = inner.map(|(inner, _)| inner.trim());
    let labels = words.filter(|word| !word.starts_with("$value"));
    labels.map(|word| word.trim_start_matches("$labels.").to_owned()).collect()
}

fn panels() -> Vec<Query> {
    let dashboard = json(DASHBOARD);
    let mut queries = Vec::new();
    for panel in list(&dashboard, "/panels") {
        let title = text(panel, "/title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(Query {
                place: format!("{DASHBOARD}, {title}"),
                text: text(target, "/expr").to_owned(),
                named: templated(text(target, "/legendFormat")),
            });
        }
    }
    queries
}

/// The queries of the dashboard's variables: `label_values(SELECTOR, LABEL)`.
fn variables() -> Vec<Query> {
    let dashboard = json(DASHBOARD);
    let all = list(&dashboard, "/templating/list");
    let asked = all.iter().filter(|variable| variable["type"] == "query");
    let query = |variable: &Value| {
        let call = text(variable, "/query/query");
        let inner = call.strip_prefix("label_values(").unwrap_or_default();
        let (selector, label) = inner.rsplit_once(", ").expect("label_values of two");
        Query {
            place: format!("{DASHBOARD}, variable {}", variable["name"]),
            text: selector.to_owned(),
            named: vec![label.trim_end_matches(')').to_owned()],
        }
    };
    asked.map(query).collect()
}

fn alerts() -> Vec<Query> {
    let mut queries = Vec::new();
    for group in list(&yaml(ALERTS)[0], "/groups") {
        for rule in list(group, "/rules") {
            let annotations = rule["annotations"].to_string();
            queries.push(Query {
                place: format!("{ALERTS}, {}", text(rule, "/alert")),
                text: text(rule, "/expr").to_owned(),
                named: templated(&annotations),
            });
        }
    }
    queries
}

/// The series in the unit tests of the alerts.
fn made_up() -> Vec<Query> {
    let mut queries = Vec::new();
    for test in list(&yaml(ALERT_TESTS)[0], "/tests") {
        let place = format!("{ALERT_TESTS}, {}", text(test, "/name"));
        for series in list(test, "/input_series") {
            // The value of a bound does not matter here.
            let series = text(series, "/series");
            let text = match series.split_once(",le=") {
                Some((series, _)) => format!("{series}}}"),
                None => series.to_owned(),
            };
            let (place, named) = (place.clone(), Vec::new());
            queries.push(Query { place, text, named });
        }
    }
    queries
}

fn triggers() -> Vec<Query> {
    let object = &yaml(SCALED_OBJECT)[0];
    let asked = list(object, "/spec/triggers").iter().map(|trigger| Query {
        place: SCALED_OBJECT.to_owned(),
        text: text(trigger, "/metadata/query").to_owned(),
        named: Vec::new(),
    });
    asked.collect()
}

/// The series that the endpoint picker reads, by profile.
fn picked() -> Vec<Query> {
    let map = &yaml(PROFILES)[0];
    let profiles = map["data"].as_object().expect("a ConfigMap has data");
    let mut queries = Vec::new();
    for (file, profile) in profiles {
        let profile = &parse(file, profile.as_str().expect("a text"))[0];
        let mut plugins = list(profile, "/plugins").iter();
        let extractor = plugins.find(|plugin| plugin["type"] == "core-metrics-extractor");
        let extractor = extractor.expect("the picker reads metrics");
        let engine = extractor.pointer("/parameters/engineConfigs/0");
        let specs = engine.and_then(Value::as_object).expect("an engine");
        for (key, series) in specs.iter().filter(|(key, _)| key.ends_with("Spec")) {
            queries.push(Query {
                place: format!("{PROFILES}, {file}, {key}"),
                text: series.as_str().expect("a name").to_owned(),
                named: Vec::new(),
            });
        }
    }
    queries
}

fn all() -> Vec<Query> {
    let files = [panels(), variables(), alerts(), made_up(), triggers(), picked()];
    for queries in &files {
        assert!(!queries.is_empty(), "a file without a query");
    }
    files.concat()
}

fn scrape() -> String {
    served().client().get("/metrics").text()
}

/// Series that queries read and an exposition lacks.
fn missing(exposition: &str) -> Vec<String> {
    let known = known(&Scrape::parse(exposition));
    let queries = all();
    let missing = queries.iter().flat_map(|query| problems(query, &known));
    missing.collect()
}

#[test]
fn every_query_reads_existing_series() {
    let missing = missing(&scrape());
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_renamed_metric_or_label_is_found_everywhere() {
    let exposition = scrape();
    let renamed = exposition.replace("_num_requests_waiting", "_num_requests_queued");
    let found = missing(&renamed);
    for file in [DASHBOARD, SCALED_OBJECT, PROFILES] {
        assert!(found.iter().any(|line| line.starts_with(file)), "{found:?}");
    }
    for (before, after) in [
        ("step_failures_total", "failed_steps_total"),
        ("outcome=\"failed\"", "outcome=\"broken\""),
        ("model_name=", "model="),
    ] {
        let found = missing(&exposition.replace(before, after));
        for file in [DASHBOARD, ALERTS, ALERT_TESTS] {
            let hit = found.iter().any(|line| line.starts_with(file));
            assert!(hit, "{before} as {after} is not missed in {file}");
        }
    }
}

fn families(exposition: &str) -> Vec<String> {
    let lines = exposition.lines();
    let types = lines.filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.filter_map(|rest| rest.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_in_a_panel() {
    let shown: BTreeSet<String> = panels().iter().flat_map(names).collect();
    let is_shown = |family: &String| {
        let mut names =
            ["", "_bucket", "_sum", "_count"].map(|part| format!("{family}{part}")).into_iter();
        names.any(|name| shown.contains(&name))
    };
    let mut idle: Vec<&str> = NOT_SHOWN.iter().map(|(name, _)| *name).collect();
    let mut hidden = Vec::new();
    for family in families(&scrape()) {
        let exempt = NOT_SHOWN.iter().find(|(name, _)| family.starts_with(name));
        match exempt {
            Some((name, _)) => idle.retain(|other| other != name),
            None if is_shown(&family) => {}
            None => hidden.push(family),
        }
    }
    assert!(hidden.is_empty(), "no panel shows {hidden:?}");
    assert!(idle.is_empty(), "exempted without need: {idle:?}");
}

#[test]
fn every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let file = &yaml(ALERT_TESTS)[0];
    let mut fires = BTreeSet::new();
    let mut silent = BTreeSet::new();
    for test in list(file, "/tests") {
        for case in list(test, "/alert_rule_test") {
            let name = text(case, "/alertname").to_owned();
            match list(case, "/exp_alerts").is_empty() {
                true => silent.insert(name),
                false => fires.insert(name),
            };
        }
    }
    let groups = yaml(ALERTS);
    let rules = list(&groups[0], "/groups/0/rules").iter();
    let alerts: BTreeSet<_> = rules.map(|rule| text(rule, "/alert").to_owned()).collect();
    assert_eq!(fires, alerts);
    assert_eq!(silent, alerts);
}

#[test]
fn the_picker_finds_one_series_each_in_the_first_scrape() {
    let scrape = Scrape::parse(&scrape());
    for query in picked() {
        let series = scrape.series().filter(|(name, _)| *name == query.text);
        assert_eq!(series.count(), 1, "{}: {}", query.place, query.text);
    }
    for label in ["block_size", "num_gpu_blocks"] {
        let mut series = scrape.series();
        let geometry = series.find(|(name, _)| name.ends_with(":cache_config_info"));
        let (_, labels) = geometry.expect("vLLM's name is exported");
        assert!(labels[label].parse::<u32>().is_ok_and(|number| number > 0));
    }
}

#[test]
fn panels_are_read_from_the_provisioned_data_source() {
    let dashboard = json(DASHBOARD);
    let mut ids = BTreeSet::new();
    for panel in list(&dashboard, "/panels") {
        assert!(ids.insert(panel["id"].to_string()), "{}", panel["title"]);
        if panel["type"] != "row" {
            assert_eq!(text(panel, "/datasource/uid"), "${datasource}");
        }
    }
}
