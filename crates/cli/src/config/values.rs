//! Values that are written as texts.

use std::ops::Deref;

use model::{ExpertSharing, KvDtype, WeightDtype};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use text::{ReasoningFormat, ToolFormat};

use crate::names::unknown;

/// The value of keys whose default depends on the model or the device.
pub const AUTO: &str = "auto";

/// A value that is written as a text.
pub trait Worded: Sized {
    /// The value of `text`.
    ///
    /// # Errors
    /// The expected texts and the one that was found.
    fn read(text: &str) -> Result<Self, String>;
}

/// A text of a configuration file, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Text<T> {
    text: String,
    value: T,
}

impl<T: Worded> Text<T> {
    /// The value of `text`.
    ///
    /// # Errors
    /// As [`Worded::read`].
    pub fn read(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), value: T::read(text)? })
    }

    /// The value of a text of this crate.
    pub(crate) fn literal(text: &str) -> Self {
        Self::read(text).expect("a text of this crate has a value")
    }
}

impl<T> Text<T> {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<T> Deref for Text<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Worded> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<T> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// The value that has the name `text` among `values`.
fn one_of<T>(values: impl IntoIterator<Item = (&'static str, T)>, text: &str) -> Result<T, String> {
    let mut names = Vec::new();
    for (name, value) in values {
        if name == text {
            return Ok(value);
        }
        names.push(name);
    }
    Err(unknown(&names, text))
}

/// Names of dtypes in other servers. Weights in 16 bits are bf16.
const OTHER_DTYPES: [(&str, WeightDtype); 7] = [
    ("bfloat16", WeightDtype::Bf16),
    ("float16", WeightDtype::Bf16),
    ("fp16", WeightDtype::Bf16),
    ("half", WeightDtype::Bf16),
    ("float", WeightDtype::F32),
    ("float32", WeightDtype::F32),
    ("fp32", WeightDtype::F32),
];

/// `auto` is the dtype of the checkpoint ([`WeightDtype::Blocks`]).
impl Worded for WeightDtype {
    fn read(text: &str) -> Result<Self, String> {
        if let Some((_, dtype)) = OTHER_DTYPES.iter().find(|(name, _)| *name == text) {
            return Ok(*dtype);
        }
        let names = Self::ALL.into_iter().chain([Self::Int8w]);
        let names = names.map(|dtype| (dtype.name(), dtype));
        one_of([(AUTO, Self::Blocks)].into_iter().chain(names), text)
    }
}

/// `auto` is the device's own number format.
impl Worded for Option<KvDtype> {
    fn read(text: &str) -> Result<Self, String> {
        let names = KvDtype::ALL.map(|dtype| (dtype.name(), Some(dtype)));
        one_of([(AUTO, None)].into_iter().chain(names), text)
    }
}

/// `auto` is the format that the chat template shows.
impl Worded for Option<ToolFormat> {
    fn read(text: &str) -> Result<Self, String> {
        let names = ToolFormat::NAMES.map(|(name, format)| (name, Some(format)));
        one_of([(AUTO, None)].into_iter().chain(names), text)
    }
}

impl Worded for Option<ReasoningFormat> {
    fn read(text: &str) -> Result<Self, String> {
        let names = ReasoningFormat::NAMES.map(|(name, format)| (name, Some(format)));
        one_of([("none", None)].into_iter().chain(names), text)
    }
}

/// `auto` decides by the model's name.
impl Worded for Option<bool> {
    fn read(text: &str) -> Result<Self, String> {
        one_of([(AUTO, None), ("on", Some(true)), ("off", Some(false))], text)
    }
}

/// `vote=0.15`, `seq=2`, or nothing.
impl Worded for Option<ExpertSharing> {
    fn read(text: &str) -> Result<Self, String> {
        let sharing = match text.split_once('=') {
            None if text.is_empty() => return Ok(None),
            Some(("vote", share)) => {
                let share = share.parse().ok();
                let share = share.filter(|share| (0.0..=1.0).contains(share));
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
        let sharing = sharing.map(Some);
        sharing.ok_or_else(|| format!("{expected}, found {text:?}"))
    }
}

/// Bytes: `512MiB`, `4GiB`, `1000000`, or `auto`.
impl Worded for Option<u64> {
    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == AUTO {
            return Ok(None);
        }
        let digits = text.find(|c: char| !c.is_ascii_digit());
        let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
        let refused = |found: String| {
            format!("expected auto or a size such as 512MiB or 4GiB, found {found}")
        };
        let unit: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            other => return Err(refused(format!("unit {other}"))),
        };
        let size = number.parse::<u64>().ok();
        let size = size.and_then(|number| number.checked_mul(unit));
        let size = size.filter(|size| *size > 0).map(Some);
        size.ok_or_else(|| refused(format!("{text:?}")))
    }
}

/// Format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Worded for LogFormat {
    fn read(text: &str) -> Result<Self, String> {
        one_of([("text", Self::Text), ("json", Self::Json)], text)
    }
}

/// The treatment of unknown fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFields {
    /// A header of the answer names them.
    Name,
    /// The request is refused.
    Reject,
}

impl Worded for UnknownFields {
    fn read(text: &str) -> Result<Self, String> {
        one_of([("name", Self::Name), ("reject", Self::Reject)], text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let bytes = <Option<u64> as Worded>::read;
        for (text, expected) in
            [("512MiB", Some(512 << 20)), ("7", Some(7)), ("auto", None), ("2GiB", Some(2 << 30))]
        {
            assert_eq!(bytes(text), Ok(expected));
        }
        for wrong in ["0GiB", "", "99999999999GiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        let problem = "expected auto or a size such as 512MiB or 4GiB, found unit GB";
        assert_eq!(bytes("4GB"), Err(problem.to_owned()));
    }
}
