//! The published samplers whose texts the engine gives token for token, rendered from the fixtures
//! that `tests/tests/families.rs` compares:
//!
//! ```text
//! <!-- fidelity: FOLDER -->
//! (rendered)
//! <!-- end of table -->
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use engine::decoding::DecodingSpec;
use serde::Deserialize;

use crate::repository::File;

/// `samples.json` of a checkpoint, or `<method>.samples.json` beside it.
#[derive(Deserialize)]
struct Fixture {
    origin: Origin,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Origin {
    /// Where the network's code is published.
    model: String,
    /// Where the sampler's code is published, or words if that is a method of the model.
    sampler: String,
}

#[derive(Deserialize)]
struct Sample {
    /// The sampler's function and its settings.
    sampler: String,
    /// The same in this project's words.
    settings: String,
    tokens: Vec<u32>,
}

/// Runs and tokens of a decoder beside a published sampler.
#[derive(Default)]
struct Count {
    runs: usize,
    tokens: usize,
}

/// The table of the fixtures below `folder`.
///
/// # Errors
/// No fixture, one that does not parse, settings that are unknown.
pub(super) fn table(folder: &str, files: &[File]) -> Result<String, String> {
    let mut counts: BTreeMap<[String; 3], Count> = BTreeMap::new();
    let is_fixture = |path: &str| path.starts_with(folder) && path.ends_with("samples.json");
    for file in files.iter().filter(|file| is_fixture(&file.path)) {
        let wrong = |why: String| format!("{}: {why}", file.path);
        let fixture: Fixture =
            serde_json::from_str(&file.text).map_err(|error| wrong(error.to_string()))?;
        for sample in &fixture.samples {
            let spec = DecodingSpec::parse(&sample.settings);
            let decoding = spec.and_then(|spec| spec.resolve());
            let decoder = decoding.map_err(|error| wrong(error.to_string()))?.label;
            let (function, _) = sample
                .sampler
                .split_once(',')
                .unwrap_or((&sample.sampler, ""));
            let key = [decoder, function.to_owned(), source(&fixture.origin)];
            let count = counts.entry(key).or_default();
            count.runs += 1;
            count.tokens += sample.tokens.len();
        }
    }
    if counts.is_empty() {
        return Err(format!("{folder}: no samples.json below it"));
    }
    let mut out = "| decoder | published sampler | from | equal runs | tokens |\n\
                   |---|---|---|---|---|\n"
        .to_owned();
    for ([decoder, function, source], Count { runs, tokens }) in counts {
        let _ = writeln!(
            out,
            "| {decoder} | `{function}` | {source} | {runs} | {tokens} |"
        );
    }
    Ok(out)
}

/// The repository of the sampler, without its commit and paths.
fn source(origin: &Origin) -> String {
    const HOST: &str = "github.com/";
    let sampler = origin.sampler.strip_prefix(HOST);
    let address = sampler.unwrap_or(origin.model.trim_start_matches(HOST));
    let repository = address.split([' ', ',']).next();
    repository.unwrap_or(address).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
            rust: None,
        }
    }

    #[test]
    fn runs_are_counted_by_decoder_and_sampler() {
        let sample = |settings: &str| {
            format!(r#"{{"sampler": "generate, T 0", "settings": "{settings}", "tokens": [1, 2]}}"#)
        };
        let text = format!(
            r#"{{"origin": {{"model": "github.com/c/d at 1", "sampler": "github.com/a/b at 12, x.py"}},
                "samples": [{}, {}, {}]}}"#,
            sample("vanilla"),
            sample("vanilla,block_length=8"),
            sample("fast_dllm")
        );
        let files = [
            file("f/one/samples.json", &text),
            file("f/one/config.json", "{}"),
        ];
        let rows = "| block_wise+threshold+none | `generate` | a/b | 1 | 2 |\n\
                    | block_wise+top_k+none | `generate` | a/b | 2 | 4 |\n";
        assert!(table("f", &files).expect("a table").ends_with(rows));
        let method = text.replace("github.com/a/b at 12, x.py", "the model's own");
        let found = table("f", &[file("f/one/samples.json", &method)]).expect("a table");
        assert!(found.contains("| `generate` | c/d | 2 |"), "{found}");
    }

    #[test]
    fn faults_are_named() {
        assert_eq!(table("g", &[]).unwrap_err(), "g: no samples.json below it");
        let found = table("f", &[file("f/one/samples.json", "{}")]).unwrap_err();
        assert!(
            found.starts_with("f/one/samples.json: missing field"),
            "{found}"
        );
    }
}
