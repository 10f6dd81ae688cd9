//! Measured tables in documents: a table between markers is rendered from a result file, never
//! written by hand.
//!
//! ```text
//! <!-- table: tests/bench/FOLDER/NAME.json -->
//! (rendered)
//! <!-- end of table -->
//! ```

use std::fmt::Write;

use serde::Deserialize;

use crate::{File, Problem};

const START: &str = "<!-- table: ";
const END: &str = "<!-- end of table -->";

/// A result of `asynclane bench`, as far as a document shows it.
#[derive(Debug, Deserialize)]
struct Report {
    command: String,
    machine: String,
    task: String,
    problems: u64,
    max_tokens: u64,
    concurrency: u64,
    decoders: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    name: String,
    end: f64,
    strict: f64,
    nfe_per_token: f64,
    positions_per_token: f64,
    tps: f64,
    ratio: f64,
}

/// One problem per table that is not what its result file says.
pub fn check(files: &[File]) -> Vec<Problem> {
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    documents
        .filter_map(|file| {
            let what = match rendered(&file.text, files) {
                Ok(text) if text == file.text => return None,
                Ok(_) => "a table differs from its result file: run `cargo xtask fix`".to_owned(),
                Err(why) => why,
            };
            Some(Problem {
                rule: "tables",
                path: file.path.clone(),
                line: 0,
                what,
            })
        })
        .collect()
}

/// `text` with every table rendered anew.
///
/// # Errors
/// A marker without an end, a result file that is missing or unreadable.
pub fn rendered(text: &str, files: &[File]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = marker(rest) {
        let line_end = rest[at..]
            .find('\n')
            .ok_or("a table marker without a table")?
            + at
            + 1;
        let name = rest[at + START.len()..line_end]
            .trim()
            .trim_end_matches("-->")
            .trim();
        let end = rest[line_end..]
            .find(END)
            .ok_or(format!("{name}: no `{END}`"))?
            + line_end;
        let found = files.iter().find(|file| file.path == name);
        let file = found.ok_or(format!("{name}: the result file is missing"))?;
        let report =
            serde_json::from_str(&file.text).map_err(|error| format!("{name}: {error}"))?;
        out.push_str(&rest[..line_end]);
        out.push_str(&table(&report));
        rest = &rest[end..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Where a marker begins a line.
fn marker(text: &str) -> Option<usize> {
    if text.starts_with(START) {
        return Some(0);
    }
    text.find(&format!("\n{START}")).map(|at| at + 1)
}

fn table(report: &Report) -> String {
    let mut out = format!(
        "{} held-out {}, budget {}, concurrency {}, {}: `{}`\n\n",
        report.problems,
        report.task,
        report.max_tokens,
        report.concurrency,
        report.machine,
        report.command,
    );
    out.push_str("| decoder | end % | strict % | NFE/token | positions/token | TPS | ratio |\n");
    out.push_str("|---|---|---|---|---|---|---|\n");
    for entry in &report.decoders {
        let _ = writeln!(
            out,
            "| `{}` | {:.1} | {:.1} | {:.3} | {:.1} | {:.0} | {:.2}x |",
            entry.name,
            entry.end,
            entry.strict,
            entry.nfe_per_token,
            entry.positions_per_token,
            entry.tps,
            entry.ratio,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"command":"asynclane bench","machine":"m","task":"sums",
        "problems":2,"max_tokens":8,"concurrency":1,"decoders":[{"name":"vanilla","label":"l",
        "end":90.0,"strict":50.0,"nfe_per_token":1.0,"positions_per_token":2.0,"tokens":3,
        "tps":4.0,"ratio":1.0,"overhead":0.1}]}"#;

    #[test]
    fn a_table_is_made_from_its_file_and_a_changed_figure_is_found() {
        let result = File::new("r.json", RESULT);
        let empty = format!("a\n{START}r.json -->\n{END}\nb\n");
        let full = rendered(&empty, std::slice::from_ref(&result)).unwrap();
        assert!(
            full.contains("| `vanilla` | 90.0 | 50.0 | 1.000 | 2.0 | 4 | 1.00x |"),
            "{full}"
        );
        assert!(full.starts_with("a\n") && full.ends_with(&format!("{END}\nb\n")));
        let changed = full.replace("90.0", "91.0");
        let problems =
            |text: &str| check(&[File::new("README.md", text), File::new("r.json", RESULT)]).len();
        assert_eq!((problems(&full), problems(&changed)), (0, 1));
    }

    #[test]
    fn a_missing_file_is_a_problem() {
        let text = format!("{START}gone.json -->\n{END}\n");
        assert!(rendered(&text, &[]).is_err());
    }
}
