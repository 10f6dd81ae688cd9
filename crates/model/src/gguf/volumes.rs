//! The files of a model: one, or several shards (`NAME-00001-of-00003.gguf`).

use super::types::TensorInfo;
use super::{first_line, header};
use crate::LoadError;
use crate::files::{Bytes, FileSlice, Files, shard_stem};
use candle_core::quantized::gguf_file::{Content, Value as Field};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

/// The metadata of a file.
pub(super) type Fields = HashMap<String, Field>;

/// The number of a shard, from 0, and the number of shards.
const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
/// The number of tensors of all shards.
const TENSORS: &str = "split.tensors.count";

/// One file.
struct Volume {
    file: String,
    bytes: Bytes,
    /// The first byte of the tensors.
    start: u64,
}

/// The tensors of all files.
pub(super) struct Volumes {
    files: Vec<Volume>,
    /// Each tensor with the number of its file.
    tensors: BTreeMap<String, (usize, TensorInfo)>,
}

impl Volumes {
    /// Opens a file, and the other shards if it is the first one of several. Returns the metadata of the
    /// file too.
    pub(super) fn open(files: &Files, first: &str) -> Result<(Fields, Self), LoadError> {
        let mut all = Self { files: Vec::new(), tensors: BTreeMap::new() };
        let fields = all.add(files, first)?;
        let field = |fields: &Fields, key: &str| fields.get(key).and_then(plain)?.as_u64();
        let count = field(&fields, COUNT).unwrap_or(1);
        if count <= 1 {
            return Ok((fields, all));
        }
        let check = |file: &str, fields: &Fields, key: &str, expected: u64| {
            let found = field(fields, key);
            match found == Some(expected) {
                true => Ok(()),
                false => Err(LoadError::Key {
                    file: file.to_owned(),
                    key: key.to_owned(),
                    expected: expected.to_string(),
                    found: found.map_or("nothing".to_owned(), |found| found.to_string()),
                }),
            }
        };
        check(first, &fields, NUMBER, 0)?;
        let stem = shard_stem(first).filter(|(_, shards)| *shards == count);
        let (stem, _) = stem.ok_or_else(|| LoadError::Key {
            file: first.to_owned(),
            key: COUNT.to_owned(),
            expected: format!("a name like NAME-00001-of-{count:05}.gguf"),
            found: count.to_string(),
        })?;
        for number in 1..count {
            let name = format!("{stem}-{:05}-of-{count:05}.gguf", number + 1);
            let own = all.add(files, &name)?;
            check(&name, &own, NUMBER, number)?;
            check(&name, &own, COUNT, count)?;
        }
        if fields.contains_key(TENSORS) {
            check(first, &fields, TENSORS, all.tensors.len() as u64)?;
        }
        Ok((fields, all))
    }

    /// Adds the tensors of a file and returns its metadata.
    fn add(&mut self, files: &Files, file: &str) -> Result<Fields, LoadError> {
        let bytes = files.open(file)?;
        let header = header::read(&bytes).map_err(|fault| fault.in_file(file))?;
        let corrupt = |reason: String| LoadError::Corrupt { file: file.to_owned(), reason };
        let content = Content::read(&mut Cursor::new(header.metadata));
        let content = content.map_err(|error| corrupt(first_line(&error)))?;
        check_sizes(file, &header.tensors)?;
        for (name, info) in header.tensors {
            let twice = corrupt(format!("{name}: stored twice"));
            if self.tensors.insert(name, (self.files.len(), info)).is_some() {
                return Err(twice);
            }
        }
        let file = file.to_owned();
        self.files.push(Volume { file, bytes, start: header.start });
        Ok(content.metadata)
    }

    /// The entry of a tensor.
    pub(super) fn info(&self, tensor: &str) -> Option<&TensorInfo> {
        self.tensors.get(tensor).map(|(_, info)| info)
    }

    /// The entries of all tensors.
    pub(super) fn infos(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.values().map(|(_, info)| info)
    }

    /// The names of all tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.tensors.keys()
    }

    /// `length` bytes of a tensor, from byte `before` on; `name` is its name in errors.
    pub(super) fn data(
        &self,
        name: &str,
        tensor: &str,
        before: u64,
        length: usize,
    ) -> Result<FileSlice<'_>, LoadError> {
        let volume =
            self.tensors.get(tensor).and_then(|(file, info)| Some((self.files.get(*file)?, info)));
        let (volume, info) = volume.ok_or_else(|| LoadError::MissingTensor {
            file: self.files.first().map_or_else(String::new, |first| first.file.clone()),
            tensor: tensor.to_owned(),
            expected: Vec::new(),
        })?;
        let start = volume.start.checked_add(info.offset);
        let start = start.and_then(|start| start.checked_add(before));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(length)?));
        let range = range.filter(|range| range.end <= volume.bytes.len());
        let range = range.ok_or_else(|| LoadError::Corrupt {
            file: volume.file.clone(),
            reason: format!("{name}: the file ends in the tensor"),
        })?;
        volume.bytes.slice(range).map_err(|error| LoadError::Unreadable {
            file: volume.file.clone(),
            reason: error.to_string(),
        })
    }
}

/// A numeric metadata value as JSON.
pub(super) fn plain(field: &Field) -> Option<Value> {
    match field {
        Field::U8(n) => Some(json!(n)),
        Field::U16(n) => Some(json!(n)),
        Field::U32(n) => Some(json!(n)),
        Field::U64(n) => Some(json!(n)),
        Field::I32(n) => Some(json!(n)),
        Field::I64(n) => Some(json!(n)),
        Field::F32(x) => Some(json!(x)),
        Field::F64(x) => Some(json!(x)),
        _ => None,
    }
}

/// Checks that the size of every tensor is a number of bytes.
fn check_sizes(file: &str, tensors: &[(String, TensorInfo)]) -> Result<(), LoadError> {
    for (name, TensorInfo { dims, kind, .. }) in tensors {
        let elements = dims.iter().try_fold(1, |count: usize, size| count.checked_mul(*size));
        let bytes = elements.and_then(|count| count.checked_mul(kind.bytes));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(LoadError::Corrupt {
                file: file.to_owned(),
                reason: format!("{name}: the size of the shape {dims:?} has no 64 bits"),
            });
        }
    }
    Ok(())
}
