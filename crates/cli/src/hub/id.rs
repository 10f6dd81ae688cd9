//! The id of a model on the Hub.

use std::path::Path;

use super::{ADAPTER, GGUF, INDEX, WEIGHTS};
use crate::names::shown;
use crate::shelf;

/// The revision of an id without one.
const MAIN: &str = "main";
/// In the names of the files of a model that is split: `-00001-of-00003.gguf`.
const SHARD_INFIX: &str = "-of-0";

/// The addresses of the hub that ids are copied with.
const SITES: [&str; 3] = ["https://huggingface.co/", "huggingface.co/", "hf.co/"];

/// `org/name` or `org/name@revision`, and perhaps `:FILE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id<'a> {
    pub name: &'a str,
    pub revision: &'a str,
    /// A GGUF file, or a part of its name such as `Q4_K_M`.
    pub file: Option<&'a str>,
}

impl<'a> Id<'a> {
    /// The id that the configured `model` is, or is a short name of; `None` for a file or folder of that
    /// name, and for other texts.
    pub fn of_model(model: &'a str) -> Option<Self> {
        match Path::new(model).exists() {
            true => None,
            false => Self::parse(shelf::id(model).unwrap_or(model)),
        }
    }

    /// Parses `text`; `None` if it does not have the form of an id.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = SITES.iter().find_map(|site| text.strip_prefix(site)).unwrap_or(text);
        let (text, file) = match text.split_once(':') {
            Some((text, file)) => (text, Some(file)),
            None => (text, None),
        };
        let (name, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (organisation, model) = name.split_once('/')?;
        // A branch may contain slashes, but must not lead out of the cache folder.
        let revision_fits = revision.split('/').all(is_word);
        let fits = is_word(organisation) && is_word(model) && revision_fits;
        (fits && file.is_none_or(is_word)).then_some(Self { name, revision, file })
    }

    /// The GGUF file among `files`: the one of the given name, or the only one that has the given
    /// part in its name; the first one of a model that is split over several files. `None` if no file is
    /// given and there are safetensors.
    ///
    /// # Errors
    /// None or several of them.
    pub fn gguf<'b>(&self, files: &[&'b str]) -> Result<Option<&'b str>, String> {
        let all = files.iter().copied().filter(|file| file.ends_with(GGUF));
        // A projector of images is no model.
        let all = all.filter(|file| is_path(file) && !name(file).starts_with("mmproj"));
        let all: Vec<&str> = all.collect();
        let has_safetensors = files.contains(&WEIGHTS)
            || files.contains(&INDEX)
            || all.is_empty() && alone(files).is_some();
        if self.file.is_none() && has_safetensors {
            return Ok(None);
        }
        let requested = self.file.unwrap_or_default();
        if let Some(named) = all.iter().find(|file| **file == requested) {
            return Ok(Some(named));
        }
        let lower = requested.to_lowercase();
        let fitting = all.iter().filter(|file| file.to_lowercase().contains(&lower));
        let mut fitting: Vec<&str> = fitting.copied().collect();
        // `Q6_K` is not a part of `Q6_K_L`, nor `F16` of `BF16`, if a file ends with the word alone.
        if fitting.iter().any(|file| ends_with_word(file, &lower)) {
            fitting.retain(|file| ends_with_word(file, &lower));
        }
        match fitting.as_slice() {
            [one] => Ok(Some(one)),
            [one, ..] if shards(one, &fitting).len() == fitting.len() => {
                Ok(fitting.iter().min().copied())
            }
            [] if self.file.is_none() => {
                let found = files.iter().find(|file| !file.starts_with('.'));
                let found = found.map_or("nothing".to_owned(), |name| shown(name));
                Err(format!("expected {WEIGHTS}, {INDEX} or a GGUF file, found {found}"))
            }
            [] if all.is_empty() => Err(format!("no GGUF file {requested}, nor any other")),
            [] => Err(format!("no GGUF file {requested}; there are {}", all.join(", "))),
            several => {
                let (name, several) = (self.name, several.join(", "));
                Err(format!("give one of its GGUF files as {name}:FILE: {several}"))
            }
        }
    }
}

/// The only file of safetensors, of any name but an adapter's, unless it is one of several shards or beside
/// weights in pickles.
pub(super) fn alone<'b>(files: &[&'b str]) -> Option<&'b str> {
    let all = files.iter().copied().filter(|file| file.ends_with(".safetensors"));
    let mut all = all.filter(|file| is_word(file) && *file != ADAPTER);
    let only = all.next().filter(|only| stem(only).is_none());
    let has_pickles = files.iter().any(|file| file.starts_with("pytorch_model"));
    only.filter(|_| all.next().is_none() && !has_pickles)
}

/// The name of a shard without its number, and the number of shards.
fn stem(file: &str) -> Option<(&str, &str)> {
    let (rest, count) = file.split_once(SHARD_INFIX)?;
    Some((rest.rsplit_once('-')?.0, count))
}

/// The files of the model that `file` is a shard of, or `file` alone.
pub(super) fn shards<'b>(file: &'b str, files: &[&'b str]) -> Vec<&'b str> {
    match stem(file) {
        None => vec![file],
        own => {
            let words = files.iter().copied().filter(|other| is_path(other));
            words.filter(|other| stem(other) == own).collect()
        }
    }
}

/// True if a file's name without the number of a shard ends with `word`, which is in lower case, after a dash,
/// a dot, an underscore or a folder.
fn ends_with_word(file: &str, word: &str) -> bool {
    let whole = stem(file).map_or_else(|| file.trim_end_matches(GGUF), |(stem, _)| stem);
    let rest = whole.to_lowercase();
    let rest = rest.strip_suffix(word).filter(|_| !word.is_empty());
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(['-', '.', '_', '/']))
}

/// The name of a file without its folders.
fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// True if `file` is a name, perhaps in a folder.
fn is_path(file: &str) -> bool {
    file.matches('/').count() <= 1 && file.split('/').all(is_word)
}

/// True if `part` can be an organisation or a name; `.` and `..` cannot.
pub(super) fn is_word(part: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty() && part.chars().all(inner) && !part.starts_with(['.', '-']) && part != ".."
}
