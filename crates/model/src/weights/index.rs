//! The index of a sharded checkpoint: which shard holds which tensor.

use std::collections::BTreeMap;

use serde_json::Value;

use super::INDEX;
use crate::LoadError;
use crate::files::Files;

/// Maximum bytes of an index; the largest published one has a quarter.
const MOST_BYTES: usize = 32 << 20;
/// Maximum number of shards, each of which is a mapped file.
const MOST_SHARDS: usize = 4_096;

/// A checked index.
#[derive(Debug)]
pub(super) struct Index {
    /// File names inside the checkpoint's folder, sorted.
    pub(super) shards: Vec<String>,
    /// The number of the shard of each tensor.
    pub(super) homes: BTreeMap<String, usize>,
}

impl Index {
    /// Reads an index.
    ///
    /// # Errors
    /// If it is too large, is not JSON, has no map of tensors to files, or names a file outside its
    /// folder.
    pub(super) fn parse(text: &[u8]) -> Result<Self, LoadError> {
        let file = || INDEX.to_owned();
        let corrupt = |reason| LoadError::Corrupt { file: file(), reason };
        let at_most = |what: &str, most: usize, found: usize| match found <= most {
            true => Ok(()),
            false => Err(corrupt(format!("expected at most {most} {what}, found {found}"))),
        };
        at_most("bytes", MOST_BYTES, text.len())?;
        let index: Value =
            serde_json::from_slice(text).map_err(|error| corrupt(error.to_string()))?;
        let map = &index["weight_map"];
        let map = map.as_object().ok_or_else(|| unfit(map))?;
        let mut numbers = BTreeMap::new();
        for shard in map.values() {
            let shard = shard.as_str().ok_or_else(|| unfit(shard))?;
            if !is_plain_name(shard) {
                return Err(LoadError::ShardOutside { file: file(), shard: shard.to_owned() });
            }
            numbers.insert(shard, 0);
        }
        at_most("shards", MOST_SHARDS, numbers.len())?;
        for (number, shard) in numbers.values_mut().enumerate() {
            *shard = number;
        }
        let homes = map.iter().filter_map(|(tensor, shard)| {
            let home = numbers.get(shard.as_str()?)?;
            Some((tensor.clone(), *home))
        });
        Ok(Self {
            homes: homes.collect(),
            shards: numbers.into_keys().map(str::to_owned).collect(),
        })
    }
}

impl Files {
    /// The bytes of all tensors that the index of a sharded checkpoint states (`metadata.total_size`).
    pub fn indexed_bytes(&self) -> Option<u64> {
        let text = self.open(INDEX).ok().filter(|text| text.len() <= MOST_BYTES)?;
        let index: Value = serde_json::from_slice(&text).ok()?;
        index["metadata"]["total_size"].as_u64()
    }

    /// The names of the shards that the index of a sharded checkpoint lists, sorted.
    ///
    /// # Errors
    /// If there is no index, or it is faulty.
    pub fn shards(&self) -> Result<Vec<String>, LoadError> {
        Ok(Index::parse(&self.open(INDEX)?)?.shards)
    }
}

/// The error for a map of tensors that is none.
fn unfit(found: &Value) -> LoadError {
    let text = match found.is_null() {
        true => "nothing".to_owned(),
        false => found.to_string(),
    };
    LoadError::Key {
        file: INDEX.to_owned(),
        key: "weight_map".to_owned(),
        expected: "an object from tensor names to file names".to_owned(),
        found: text,
    }
}

/// True if a file name refers to a file directly inside the folder.
fn is_plain_name(file: &str) -> bool {
    !file.is_empty() && file != "." && file != ".." && !file.contains(['/', '\\', '\0', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(shards: usize) -> Vec<u8> {
        let names = (0..shards)
            .map(|shard| (format!("t{shard}"), Value::from(format!("{shard}.safetensors"))));
        let map: serde_json::Map<String, Value> = names.collect();
        serde_json::json!({ "weight_map": map }).to_string().into_bytes()
    }

    #[test]
    fn bytes_and_shards_are_bounded() {
        let whole = Index::parse(&index(MOST_SHARDS)).unwrap();
        assert_eq!((whole.shards.len(), whole.homes.len()), (MOST_SHARDS, MOST_SHARDS));
        let error = Index::parse(&index(MOST_SHARDS + 1)).unwrap_err();
        let expected = format!("expected at most {MOST_SHARDS} shards, found {}", MOST_SHARDS + 1);
        assert!(error.to_string().contains(&expected), "{error}");
        let error = Index::parse(&vec![b' '; MOST_BYTES + 1]).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");
    }
}
