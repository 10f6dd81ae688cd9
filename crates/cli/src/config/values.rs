//! Parsing of values that are text.

use model::{ExpertSharing, KvDtype, WeightDtype};
use text::{ReasoningFormat, ToolFormat};
use tracing_subscriber::EnvFilter;

use super::schema::{AUTO, NAME, NONE};
use crate::names::unknown;

/// The dtype of a matrix; `auto` is that of the checkpoint ([`WeightDtype::Blocks`]).
pub fn dtype(name: &str) -> Result<WeightDtype, String> {
    let names = WeightDtype::ALL.map(WeightDtype::name);
    match (name, WeightDtype::named(name)) {
        (AUTO, _) => Ok(WeightDtype::Blocks),
        (_, Some(dtype)) => Ok(dtype),
        _ => Err(unknown(&[&[AUTO], &names[..]].concat(), name)),
    }
}

/// The number format of keys and values; `None` = the device's own.
pub fn kv_dtype(name: &str) -> Result<Option<KvDtype>, String> {
    let names = KvDtype::ALL.map(KvDtype::name);
    match (name, KvDtype::named(name)) {
        (AUTO, _) => Ok(None),
        (_, Some(dtype)) => Ok(Some(dtype)),
        _ => Err(unknown(&[&[AUTO], &names[..]].concat(), name)),
    }
}

/// `vote=0.15`, `seq=2`, or nothing.
pub fn expert_sharing(text: &str) -> Result<Option<ExpertSharing>, String> {
    let sharing = match text.split_once('=') {
        None if text.is_empty() => return Ok(None),
        Some(("vote", share)) => {
            let share = share
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share));
            share.map(ExpertSharing::Vote)
        }
        Some(("seq", first)) => {
            let first = first.parse().ok().filter(|first| *first > 0);
            first.map(ExpertSharing::Sequence)
        }
        _ => None,
    };
    let expected = "expected vote=SHARE with a share in 0..1, seq=COUNT with a count >= 1, or \
                    nothing";
    sharing
        .map(Some)
        .ok_or_else(|| format!("{expected}, found {text:?}"))
}

/// `512MiB`, `4GiB`, `1000000`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let unit: u64 = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => {
            return Err(format!(
                "expected a size such as 512MiB or 4GiB, found unit {other}"
            ));
        }
    };
    let number = text[..digits].parse::<u64>().ok();
    let size = number.and_then(|number| number.checked_mul(unit));
    size.filter(|size| *size > 0)
        .ok_or_else(|| format!("expected a size such as 512MiB or 4GiB, found {text:?}"))
}

/// A size, or `None` for `auto`.
pub fn kv_memory(text: &str) -> Result<Option<u64>, String> {
    match text.trim() {
        AUTO => Ok(None),
        size => {
            let size = bytes(size);
            size.map(Some)
                .map_err(|problem| problem.replace("expected", "expected auto or"))
        }
    }
}

/// A share of a device's memory.
pub fn share(share: f64) -> Result<f64, String> {
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(format!(
            "expected a share above 0, at most 1, found {share}"
        )),
    }
}

/// A log filter in the syntax of `RUST_LOG`.
pub fn log_filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(text)
        .map_err(|error| format!("expected directives such as info,server=debug: {error}"))
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

/// `text` or `json`.
pub fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(unknown(&["text", "json"], text)),
    }
}

/// The address of a listener: `8000` and `:8000` are ports of this machine alone.
pub fn listen_address(text: &str) -> String {
    let port = text.strip_prefix(':').unwrap_or(text);
    match port.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => text.to_owned(),
    }
}

/// Whether unknown fields of a request are refused.
///
/// # Errors
/// Another word than `name` and `reject`.
pub fn unknown_fields(word: &str) -> Result<bool, String> {
    match word {
        NAME => Ok(false),
        "reject" => Ok(true),
        _ => Err(unknown(&[NAME, "reject"], word)),
    }
}

/// Whether weights were trained to rewrite committed tokens; `None` = by the model's name.
///
/// # Errors
/// Another word.
pub fn edits(word: &str) -> Result<Option<bool>, String> {
    match word {
        AUTO => Ok(None),
        "on" => Ok(Some(true)),
        "off" => Ok(Some(false)),
        _ => Err(unknown(&[AUTO, "on", "off"], word)),
    }
}

/// How calls are written; `None` = as the chat template shows them.
///
/// # Errors
/// Another name.
pub fn tool_parser(name: &str) -> Result<Option<ToolFormat>, String> {
    let names = ToolFormat::NAMES.map(|(name, _)| name);
    match (name, ToolFormat::named(name)) {
        (AUTO, _) => Ok(None),
        (_, Some(format)) => Ok(Some(format)),
        _ => Err(unknown(&[&[AUTO], &names[..]].concat(), name)),
    }
}

/// How reasoning is marked; `None` = answers have none.
///
/// # Errors
/// Another name.
pub fn reasoning_parser(name: &str) -> Result<Option<ReasoningFormat>, String> {
    let names = ReasoningFormat::NAMES.map(|(name, _)| name);
    match (name, ReasoningFormat::named(name)) {
        (NONE, _) => Ok(None),
        (_, Some(format)) => Ok(Some(format)),
        _ => Err(unknown(&[&[NONE], &names[..]].concat(), name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        assert_eq!(bytes("7"), Ok(7));
        assert!(bytes("0GiB").is_err() && bytes("4GB").is_err() && bytes("").is_err());
        assert!(bytes("99999999999GiB").is_err());
        assert_eq!(kv_memory("auto"), Ok(None));
        assert_eq!(kv_memory("2GiB"), Ok(Some(2 << 30)));
        let problem = "expected auto or a size such as 512MiB or 4GiB, found unit GB";
        assert_eq!(kv_memory("4GB"), Err(problem.to_owned()));
    }

    #[test]
    fn shares() {
        assert_eq!(share(1.0), Ok(1.0));
        for wrong in [0.0, -0.5, 1.01, f64::NAN] {
            assert!(
                share(wrong)
                    .unwrap_err()
                    .starts_with("expected a share above 0")
            );
        }
    }
}
