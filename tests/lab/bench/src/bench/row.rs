//! The rows of a comparison: every decoder under every load, budget and target.

use std::sync::Arc;

use engine::decoding::{Decoding, DecodingSpec};

use super::arrivals::LoadPattern;
use crate::args::{BenchArgs, BenchTarget};

/// A decoder: its name and its resolved settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// A preset or settings as on the command line, with `MODEL:` in front if a model is named.
    pub name: String,
    /// The model, as for `--model`; `None` is the configured one.
    pub model: Option<String>,
    /// The settings.
    pub spec: DecodingSpec,
    /// The resolved settings.
    pub decoding: Decoding,
}

/// One row of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRow {
    /// The decoder's name, followed by the values that differ between rows: `balanced c=16`.
    pub name: String,
    /// The decoder.
    pub decoder: Arc<Decoder>,
    /// The pattern in which requests arrive.
    pub load: LoadPattern,
    /// Generation budget in tokens.
    pub max_tokens: u32,
    /// The target that answers.
    pub target: BenchTarget,
    /// Dtype of the weight matrices.
    pub dtype: String,
    /// Number format of keys and values.
    pub kv_dtype: String,
}

/// Identifies the target that answers a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetKey {
    /// Its kind.
    pub target: BenchTarget,
    /// Its model, as [`Decoder::model`].
    pub model: Option<String>,
    /// Dtype of its weight matrices.
    pub dtype: String,
    /// Number format of its keys and values.
    pub kv_dtype: String,
}

impl BenchRow {
    /// The key of the target that answers.
    pub fn target_key(&self) -> TargetKey {
        TargetKey {
            target: self.target,
            model: self.decoder.model.clone(),
            dtype: self.dtype.clone(),
            kv_dtype: self.kv_dtype.clone(),
        }
    }
}

/// The dimensions in which rows of one decoder differ; no list is empty.
#[derive(Debug)]
pub struct Axes<'a> {
    /// Names of dtypes.
    pub dtypes: &'a [String],
    /// Names of number formats of keys and values.
    pub kv_dtypes: &'a [String],
    /// The pattern in which requests arrive.
    pub loads: &'a [LoadPattern],
}

/// All combinations of decoders and dimensions; the decoder is the outermost.
pub fn rows(args: &BenchArgs, axes: &Axes<'_>, decoders: &[Decoder]) -> Vec<BenchRow> {
    let mut rows: Vec<BenchRow> = decoders
        .iter()
        .map(|decoder| BenchRow {
            name: decoder.name.clone(),
            decoder: Arc::new(decoder.clone()),
            load: axes.loads[0],
            max_tokens: 0,
            target: BenchTarget::Engine,
            dtype: String::new(),
            kv_dtype: String::new(),
        })
        .collect();
    rows = spread(rows, &args.target, |row, target| {
        row.target = *target;
        target.to_string()
    });
    rows = spread(rows, axes.dtypes, |row, dtype| {
        row.dtype.clone_from(dtype);
        dtype.clone()
    });
    rows = spread(rows, axes.kv_dtypes, |row, dtype| {
        row.kv_dtype.clone_from(dtype);
        format!("kv={dtype}")
    });
    rows = spread(rows, &args.max_tokens, |row, budget| {
        row.max_tokens = *budget;
        format!("budget={budget}")
    });
    spread(rows, axes.loads, |row, load| {
        row.load = *load;
        load.label()
    })
}

/// Every row with every one of `values`; `set` stores a value in a row and returns its label, which
/// is added to the name if there are several values.
fn spread<T>(
    rows: Vec<BenchRow>,
    values: &[T],
    set: impl Fn(&mut BenchRow, &T) -> String,
) -> Vec<BenchRow> {
    let mut spread = Vec::with_capacity(rows.len() * values.len());
    for row in rows {
        for value in values {
            let mut row = row.clone();
            let label = set(&mut row, value);
            if values.len() > 1 {
                row.name.push(' ');
                row.name.push_str(&label);
            }
            spread.push(row);
        }
    }
    spread
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn names(arguments: &[&str], dtypes: [&[&str]; 2], loads: &[LoadPattern]) -> Vec<String> {
        let cli = Cli::parse_from([&["asynclane-lab", "bench"][..], arguments].concat());
        let Command::Bench(args) = cli.command else {
            panic!("not bench");
        };
        let decoders = ["vanilla", "fast"].map(|name| {
            let spec = DecodingSpec::parse(name).unwrap();
            let decoding = spec.resolve().unwrap();
            let name = name.to_owned();
            Decoder { name, model: None, spec, decoding }
        });
        let [dtypes, kv_dtypes] =
            dtypes.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let axes = Axes { dtypes: &dtypes, kv_dtypes: &kv_dtypes, loads };
        let rows = rows(&args, &axes, &decoders);
        rows.into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn a_name_has_no_label_of_a_single_value() {
        let loads = [LoadPattern::Closed(4)];
        assert_eq!(names(&[], [&["f32"], &["auto"]], &loads), ["vanilla", "fast"]);
    }

    #[test]
    fn a_name_has_the_labels_of_values_that_differ() {
        let loads = [LoadPattern::Closed(1), LoadPattern::Closed(16)];
        let rows = names(&["--max-tokens", "256,512"], [&["f32"], &["auto"]], &loads);
        let expected = [
            "vanilla budget=256 c=1",
            "vanilla budget=256 c=16",
            "vanilla budget=512 c=1",
            "vanilla budget=512 c=16",
        ];
        assert_eq!(rows[..4], expected);
        assert_eq!((rows.len(), rows[4].as_str()), (8, "fast budget=256 c=1"));
        let flags = ["--target", "engine,http"];
        let both = [&["f32", "int8"][..], &["f32", "bf16"]];
        let rows = names(&flags, both, &[LoadPattern::Open(2.5)]);
        assert_eq!(rows.len(), 16);
        assert_eq!(rows[0], "vanilla engine f32 kv=f32");
        assert_eq!(rows[15], "fast http int8 kv=bf16");
    }
}
