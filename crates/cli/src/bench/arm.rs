//! The rows of a comparison: every decoder under every load, budget and target.

use std::sync::Arc;

use engine::decoding::{Decoding, DecodingSpec};

use super::arrivals::Load;
use crate::args::{BenchArgs, BenchTarget};

/// A decoder as it was named, and what it resolves to.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// A preset's name or the settings, as a user would pass them, the model in front of it where
    /// one is named.
    pub name: String,
    /// The model that it decodes, as `--model` takes it; `None` is the configured one.
    pub model: Option<String>,
    /// The settings.
    pub spec: DecodingSpec,
    /// What they resolve to.
    pub decoding: Decoding,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The decoder's name, and behind it whatever differs between rows: `balanced c=16`.
    pub name: String,
    /// What decodes.
    pub decoder: Arc<Decoder>,
    /// How requests arrive.
    pub load: Load,
    /// Generation budget in tokens.
    pub max_tokens: u32,
    /// What is asked.
    pub target: BenchTarget,
    /// How its matrices are kept and multiplied.
    pub dtype: String,
    /// Open streams that wait meanwhile, on the side.
    pub idle: usize,
}

/// Which of the targets answers a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its kind.
    pub target: BenchTarget,
    /// Its model, as [`Decoder::model`].
    pub model: Option<String>,
    /// How its matrices are kept.
    pub dtype: String,
}

impl Arm {
    /// Who answers.
    pub fn place(&self) -> Place {
        Place {
            target: self.target,
            model: self.decoder.model.clone(),
            dtype: self.dtype.clone(),
        }
    }
}

/// What rows differ in besides their decoder; no list is empty.
#[derive(Debug)]
pub struct Axes<'a> {
    /// Names of dtypes.
    pub dtypes: &'a [String],
    /// How requests arrive.
    pub loads: &'a [Load],
}

/// Every decoder under everything that was asked for, the decoders outermost.
pub fn arms(args: &BenchArgs, axes: &Axes<'_>, decoders: &[Decoder]) -> Vec<Arm> {
    let mut arms: Vec<Arm> = decoders
        .iter()
        .map(|decoder| Arm {
            name: decoder.name.clone(),
            decoder: Arc::new(decoder.clone()),
            load: axes.loads[0],
            max_tokens: 0,
            target: BenchTarget::Engine,
            dtype: String::new(),
            idle: 0,
        })
        .collect();
    let idle = match args.idle_streams {
        0 => vec![0],
        count => vec![0, count],
    };
    arms = spread(arms, &args.target, |arm, target| {
        arm.target = *target;
        target.to_string()
    });
    arms = spread(arms, axes.dtypes, |arm, dtype| {
        arm.dtype.clone_from(dtype);
        dtype.clone()
    });
    arms = spread(arms, &args.max_tokens, |arm, budget| {
        arm.max_tokens = *budget;
        format!("budget={budget}")
    });
    arms = spread(arms, axes.loads, |arm, load| {
        arm.load = *load;
        load.label()
    });
    spread(arms, &idle, |arm, count| {
        arm.idle = *count;
        format!("idle={count}")
    })
}

/// Every row with every one of `values`, which `set` puts into it and names. One value alone
/// needs no name.
fn spread<T>(arms: Vec<Arm>, values: &[T], set: impl Fn(&mut Arm, &T) -> String) -> Vec<Arm> {
    let mut spread = Vec::with_capacity(arms.len() * values.len());
    for arm in arms {
        for value in values {
            let mut arm = arm.clone();
            let label = set(&mut arm, value);
            if values.len() > 1 {
                arm.name.push(' ');
                arm.name.push_str(&label);
            }
            spread.push(arm);
        }
    }
    spread
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn names(arguments: &[&str], dtypes: &[&str], loads: &[Load]) -> Vec<String> {
        let cli = Cli::parse_from([&["asynclane", "bench"][..], arguments].concat());
        let Command::Bench(args) = cli.command else {
            panic!("not bench");
        };
        let decoders = ["vanilla", "fast"].map(|name| {
            let spec = DecodingSpec::parse(name).unwrap();
            let decoding = spec.resolve().unwrap();
            let name = name.to_owned();
            Decoder {
                name,
                model: None,
                spec,
                decoding,
            }
        });
        let dtypes: Vec<String> = dtypes.iter().map(|name| (*name).to_owned()).collect();
        let axes = Axes {
            dtypes: &dtypes,
            loads,
        };
        let arms = arms(&args, &axes, &decoders);
        arms.into_iter().map(|arm| arm.name).collect()
    }

    #[test]
    fn what_is_the_same_for_all_rows_is_not_in_their_names() {
        let loads = [Load::Closed(4)];
        assert_eq!(names(&[], &["f32"], &loads), ["vanilla", "fast"]);
    }

    #[test]
    fn rows_are_named_by_what_differs_between_them() {
        let loads = [Load::Closed(1), Load::Closed(16)];
        let rows = names(&["--max-tokens", "256,512"], &["f32"], &loads);
        let expected = [
            "vanilla budget=256 c=1",
            "vanilla budget=256 c=16",
            "vanilla budget=512 c=1",
            "vanilla budget=512 c=16",
        ];
        assert_eq!(rows[..4], expected);
        assert_eq!((rows.len(), rows[4].as_str()), (8, "fast budget=256 c=1"));
        let flags = ["--target", "engine,http", "--idle-streams", "9"];
        let rows = names(&flags, &["f32", "int8"], &[Load::Open(2.5)]);
        assert_eq!(rows.len(), 16);
        assert_eq!(rows[0], "vanilla engine f32 idle=0");
        assert_eq!(rows[15], "fast http int8 idle=9");
    }
}
