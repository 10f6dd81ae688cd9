//! Single measured numbers in the text of a document:
//!
//! ```text
//! <!-- value: tests/lab/records/FOLDER/NAME.json FIELD ROW -->(rendered)<!-- -->
//! ```
//!
//! FIELD is `ratio`, `strict`, `end` or `forwards`; ROW is the name of a row or of a derived
//! preset, and may hold blanks.

use crate::repository::File;
use crate::result::Report;

use super::presets;

const START: &str = "<!-- value: ";
const END: &str = "<!-- -->";

/// `text` with every number rendered anew.
///
/// # Errors
/// A marker that is incomplete, a result file that is missing or unreadable, an unknown row or
/// field.
pub(super) fn rendered(text: &str, files: &[File]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(START) {
        let marker = &rest[at + START.len()..];
        let (what, after) = marker.split_once("-->").ok_or("a value without `-->`")?;
        let (_, behind) = after
            .split_once(END)
            .ok_or_else(|| format!("{what}: no `{END}`"))?;
        let shown = value(what.trim(), files)?;
        out.push_str(&rest[..rest.len() - after.len()]);
        out.push_str(&shown);
        out.push_str(END);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// The number that `FILE FIELD ROW` names.
fn value(what: &str, files: &[File]) -> Result<String, String> {
    let mut words = what.splitn(3, ' ');
    let (Some(path), Some(field), Some(row)) = (words.next(), words.next(), words.next()) else {
        return Err(format!("expected FILE FIELD ROW, found {what}"));
    };
    let file = files.iter().find(|file| file.path == path);
    let file = file.ok_or_else(|| format!("{path}: the result file is missing"))?;
    let report = serde_json::from_str(&file.text).map_err(|error| format!("{path}: {error}"))?;
    let (ratio, strict, end, forwards) =
        facts(&report, row).ok_or_else(|| format!("{path}: no row {row}"))?;
    match field {
        "ratio" => Ok(format!("{ratio:.1}")),
        "strict" => Ok(format!("{strict:.1}")),
        "end" => Ok(format!("{end:.1}")),
        "forwards" => Ok(format!("{forwards:.2}")),
        _ => Err(format!(
            "expected ratio, strict, end or forwards, found {field}"
        )),
    }
}

/// Ratio, strict and end accuracy in percent, forward passes per token.
fn facts(report: &Report, name: &str) -> Option<(f64, f64, f64, f64)> {
    match report {
        Report::Several(report) => presets::row(report, name)
            .map(|row| (row.ratio, row.strict, row.end, row.nfe_per_token)),
        Report::Decoders(report) => {
            let mut rows = report.task.decoders.iter();
            rows.find(|row| row.name == name)
                .map(|row| (row.ratio, row.strict, row.end, row.nfe_per_token))
        }
        Report::Peers(report) => {
            let mut rows = report.peers.iter();
            rows.find(|row| row.name == name)
                .map(|row| (row.ratio, row.strict, row.end, row.nfe_per_token))
        }
        _ => None,
    }
}
