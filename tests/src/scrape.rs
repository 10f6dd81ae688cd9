//! A parser of the Prometheus text format.

use std::collections::BTreeMap;

/// Gauges of a server's resources for requests.
const GAUGES: [&str; 5] = [
    "asynclane_num_requests_running",
    "asynclane_num_requests_waiting",
    "asynclane_kv_pages_used",
    "asynclane_kv_cache_usage_perc",
    "asynclane_lanes_active",
];

/// All samples of one scrape.
#[derive(Clone, Debug)]
pub struct Scrape {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    /// Parses an exposition. Panics on a line that is neither a sample nor a comment.
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let parse =
            |line| sample(line).unwrap_or_else(|| panic!("expected a sample, found {line:?}"));
        Self { samples: lines.map(parse).collect() }
    }

    /// The sum over all series `name` with these labels. Panics if there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &Sample, (label, value): &(&str, &str)| {
            sample.labels.get(*label).is_some_and(|found| found == value)
        };
        let named = self.samples.iter().filter(|sample| sample.name == name);
        let matching = named.filter(|sample| labels.iter().all(|label| has(sample, label)));
        let values: Vec<f64> = matching.map(|sample| sample.value).collect();
        assert!(!values.is_empty(), "no series {name} {labels:?}");
        values.iter().sum()
    }

    /// Name and labels of every series.
    pub fn series(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        let samples = self.samples.iter();
        samples.map(|sample| (sample.name.as_str(), &sample.labels))
    }

    /// The gauges of sequences, pages and lanes that are not zero.
    pub fn busy(&self) -> Vec<&'static str> {
        let mut gauges = GAUGES.to_vec();
        gauges.retain(|gauge| self.sum(gauge, &[]) != 0.0);
        gauges
    }
}

/// `name{label="value",..} number`; no label here has an escaped value.
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value: f64 = value.parse().ok().filter(|value: &f64| !value.is_nan())?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let label = |text: &str| {
        let (label, value) = text.split_once('=')?;
        let value = value.strip_prefix('"')?.strip_suffix('"')?;
        Some((label.to_owned(), value.to_owned()))
    };
    let labels = labels.split(',').filter(|text| !text.is_empty());
    Some(Sample { name: name.to_owned(), labels: labels.map(label).collect::<Option<_>>()?, value })
}
