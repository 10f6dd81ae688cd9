//! Types of request fields: each knows its range and words its own faults.
//!
//! Fields that may be absent are `Option`s, for which `null` counts as absent. A value outside
//! its range fails with the rest of a sentence that begins with the field's name.

use std::fmt;
use std::marker::PhantomData;

use engine::did_you_mean;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::clip;

/// The fault of a required field that is absent or `null`.
pub const REQUIRED: &str = "is required";

/// A field that must be there and not `null`.
#[derive(Clone, Debug)]
pub struct Required<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Required<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde takes an absent field for `None` if its type begins as an `Option` does.
        let visitor = RequiredVisitor(PhantomData);
        deserializer.deserialize_newtype_struct("Required", visitor)
    }
}

struct RequiredVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for RequiredVisitor<T> {
    type Value = Required<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Required<T>, D::Error> {
        let value = Option::deserialize(deserializer)?;
        value.map(Required).ok_or_else(|| D::Error::custom(REQUIRED))
    }
}

/// A string of at least one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonEmpty(pub String);

impl<'de> Deserialize<'de> for NonEmpty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.is_empty() {
            true => Err(D::Error::custom("must not be empty")),
            false => Ok(Self(text)),
        }
    }
}

/// One of a few names, each with its meaning.
///
/// # Errors
/// Another type, another name.
pub fn one_of<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    names: &[(&str, T)],
) -> Result<T, D::Error> {
    let found = String::deserialize(deserializer)?;
    let meant = names.iter().find(|(name, _)| *name == found);
    meant.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        let lead = if names.len() > 1 { "one of " } else { "" };
        let hint = did_you_mean(&found, names.iter().copied());
        let (names, found) = (names.join(", "), clip(&found));
        D::Error::custom(format_args!("must be {lead}{names}, got \"{found}\"{hint}"))
    })
}

/// An object. (The structs that serde derives accept lists too.)
#[derive(Clone, Debug, PartialEq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let forms = Forms::new(Form::Object, None, "an object");
        deserializer.deserialize_any(forms).map(Self)
    }
}

/// A list.
#[derive(Clone, Debug, PartialEq)]
pub struct List<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let forms = Forms::new(Form::List, None, "a list");
        deserializer.deserialize_any(forms).map(Self)
    }
}

/// Reads a string with `text`, or a list; `expected` names both.
///
/// # Errors
/// Another type; the fault of the string or of a member.
pub fn text_or_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
    text: fn(String) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Forms::new(Form::List, Some(text), expected))
}

/// Reads a string with `text`, or an object; `expected` names both.
///
/// # Errors
/// Another type; the fault of the string or of a member.
pub fn text_or_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
    text: fn(String) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Forms::new(Form::Object, Some(text), expected))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    List,
    Object,
}

/// Accepts a list or an object, and a string if there is a reader of it.
struct Forms<T> {
    form: Form,
    text: Option<fn(String) -> Result<T, String>>,
    expected: &'static str,
}

impl<T> Forms<T> {
    fn new(
        form: Form,
        text: Option<fn(String) -> Result<T, String>>,
        expected: &'static str,
    ) -> Self {
        Self { form, text, expected }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Forms<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        match self.text {
            Some(read) => read(text.to_owned()).map_err(E::custom),
            None => Err(E::invalid_type(Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        match self.form {
            Form::List => T::deserialize(SeqAccessDeserializer::new(list)),
            Form::Object => Err(A::Error::invalid_type(Unexpected::Seq, &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        match self.form {
            Form::Object => T::deserialize(MapAccessDeserializer::new(map)),
            Form::List => Err(A::Error::invalid_type(Unexpected::Map, &self)),
        }
    }
}

/// The members of an object in their order, every value of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Members<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MembersVisitor(PhantomData)).map(Self)
    }
}

struct MembersVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MembersVisitor<T> {
    type Value = Vec<(String, T)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}
