//! PromQL: the series and labels that a query reads.

use std::collections::{BTreeMap, BTreeSet};

use asynclane_tests::scrape::Scrape;
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};

/// Labels that Prometheus and its operator add to every series of a target.
const OF_TARGETS: [&str; 4] = ["instance", "job", "namespace", "pod"];
/// Series that Prometheus itself adds for every target.
const OF_PROMETHEUS: [&str; 1] = ["up"];

/// A query and its origin.
#[derive(Clone, Debug)]
pub struct Query {
    /// File, and panel or alert.
    pub place: String,
    /// PromQL, with the dashboard's variables.
    pub text: String,
    /// Labels that a legend or an annotation names.
    pub named: Vec<String>,
}

/// Label values by series name and label.
type Known = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The series and labels of a scrape.
pub fn known(scrape: &Scrape) -> Known {
    let mut known = Known::new();
    for (name, labels) in scrape.series() {
        let of_name = known.entry(name.to_owned()).or_default();
        for (label, value) in labels {
            let values = of_name.entry(label.clone()).or_default();
            values.insert(value.clone());
        }
    }
    known
}

/// The selectors and the labels that a query reads.
fn read(query: &Query) -> Result<Reader, String> {
    let text = query.text.replace("$__rate_interval", "5m");
    let text = text.replace("\"$model\"", "\".*\"").replace("\"$instance\"", "\".*\"");
    let mut reader = Reader::default();
    let Ok(_) = walk_expr(&mut reader, &parser::parse(&text)?);
    Ok(reader)
}

/// Series that a query reads and a scrape lacks.
pub fn problems(query: &Query, known: &Known) -> Vec<String> {
    let placed = |problem: String| format!("{}: {problem} in {}", query.place, query.text);
    let reader = match read(query) {
        Ok(reader) => reader,
        Err(error) => return vec![placed(error)],
    };
    let mut problems = Vec::new();
    let mut labels: BTreeSet<&str> = OF_TARGETS.into();
    for selector in &reader.selectors {
        let name = selector.name.as_deref().unwrap_or_default();
        if OF_PROMETHEUS.contains(&name) {
            continue;
        }
        let Some(of_name) = known.get(name) else {
            problems.push(placed(format!("no series {name:?}")));
            continue;
        };
        labels.extend(of_name.keys().map(String::as_str));
        let matchers = selector.matchers.matchers.iter();
        let wrong = matchers.filter_map(|matcher| mismatch(matcher, of_name));
        problems.extend(wrong.map(&placed));
    }
    let used = reader.labels.iter().chain(&query.named);
    let strange = used.filter(|label| !labels.contains(label.as_str()));
    problems.extend(strange.map(|label| placed(format!("no label {label:?}"))));
    problems
}

/// The series that a query reads.
pub fn names(query: &Query) -> BTreeSet<String> {
    let selectors = read(query).unwrap_or_default().selectors.into_iter();
    selectors.filter_map(|selector| selector.name).collect()
}

/// Why a matcher selects nothing.
fn mismatch(matcher: &Matcher, of_name: &BTreeMap<String, BTreeSet<String>>) -> Option<String> {
    if OF_TARGETS.contains(&matcher.name.as_str()) {
        return None;
    }
    let Some(values) = of_name.get(&matcher.name) else {
        return Some(format!("no label {:?}", matcher.name));
    };
    let positive = matches!(matcher.op, MatchOp::Equal | MatchOp::Re(_));
    let none = !values.iter().any(|value| matcher.is_match(value));
    (positive && none).then(|| format!("no {} is {:?}", matcher.name, matcher.value))
}

/// Collects selectors, and the labels of groupings and matches.
#[derive(Debug, Default)]
struct Reader {
    selectors: Vec<VectorSelector>,
    labels: Vec<String>,
}

impl Reader {
    fn modifier(&mut self, modifier: Option<&LabelModifier>) {
        let labels = modifier.map(|modifier| modifier.labels().labels.clone());
        self.labels.extend(labels.unwrap_or_default());
    }
}

impl ExprVisitor for Reader {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        match expr {
            Expr::VectorSelector(selector) => self.selectors.push(selector.clone()),
            Expr::MatrixSelector(matrix) => self.selectors.push(matrix.vs.clone()),
            Expr::Aggregate(aggregate) => self.modifier(aggregate.modifier.as_ref()),
            Expr::Binary(binary) => {
                let matching = binary.modifier.as_ref().and_then(|m| m.matching.as_ref());
                self.modifier(matching);
            }
            _ => {}
        }
        Ok(true)
    }
}
