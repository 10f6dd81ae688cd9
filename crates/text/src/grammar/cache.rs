//! Compiled specifications by their content, so that a repeated one is compiled once.

use std::collections::HashMap;
use std::sync::Mutex;

use super::constraint::GrammarConstraint;
use super::{GrammarError, GrammarSpec};

/// Maximum specifications.
const MAX_ENTRIES: usize = 64;
/// Maximum bytes of all specifications together.
const MAX_SPEC_BYTES: usize = 4 * 1024 * 1024;
/// Maximum bytes that the compiled grammars take together, as estimated from their lexers.
const MAX_COMPILED_BYTES: usize = 64 * 1024 * 1024;

/// Start states and refusals. The least recently used goes first.
#[derive(Default)]
pub(super) struct Cache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    /// Counts uses.
    clock: u64,
    bytes: usize,
    compiled: usize,
}

/// A kind of specification and its source: compared as a whole, so that no two share an entry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key(u8, String);

struct Entry {
    compiled: Result<GrammarConstraint, GrammarError>,
    used: u64,
    size: usize,
}

/// The key of `spec`, which is within the limits of a specification.
pub(super) fn key(spec: &GrammarSpec) -> Key {
    match spec {
        GrammarSpec::JsonObject => Key(0, String::new()),
        GrammarSpec::JsonSchema(schema) => Key(1, schema.to_string()),
        GrammarSpec::ClosedJsonSchema(schema) => Key(6, schema.to_string()),
        GrammarSpec::Regex(source) => Key(2, source.clone()),
        GrammarSpec::Lark(source) => Key(3, source.clone()),
        GrammarSpec::Choice(texts) => Key(4, serde_json::json!(texts).to_string()),
        GrammarSpec::Tools(tools) => {
            let functions = tools.tools.iter();
            let functions = functions.map(|tool| (&tool.name, &tool.parameters, tool.follow as u8));
            let functions: Vec<_> = functions.collect();
            let kind = format!("{:?} {:?} {}", tools.format, tools.mode, tools.parallel);
            Key(5, serde_json::json!([kind, functions, tools.answer]).to_string())
        }
    }
}

impl Cache {
    /// A copy of the start state of a specification, or its refusal.
    pub(super) fn get(&self, key: &Key) -> Option<Result<GrammarConstraint, GrammarError>> {
        let mut entries = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        entries.clock += 1;
        let now = entries.clock;
        let entry = entries.by_key.get_mut(key)?;
        entry.used = now;
        Some(match &entry.compiled {
            Ok(start) => Ok(start.duplicate()),
            Err(error) => Err(error.clone()),
        })
    }

    /// Keeps the start state or the refusal of a specification; `size` estimates the bytes of a
    /// start state.
    pub(super) fn put(
        &self,
        key: Key,
        compiled: Result<GrammarConstraint, GrammarError>,
        size: usize,
    ) {
        if size > MAX_COMPILED_BYTES || key.1.len() > MAX_SPEC_BYTES {
            return;
        }
        let mut entries = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        entries.remove(&key);
        while entries.by_key.len() >= MAX_ENTRIES
            || entries.bytes + key.1.len() > MAX_SPEC_BYTES
            || entries.compiled + size > MAX_COMPILED_BYTES
        {
            let oldest = entries.by_key.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            entries.remove(&oldest);
        }
        entries.clock += 1;
        entries.bytes += key.1.len();
        entries.compiled += size;
        let used = entries.clock;
        entries.by_key.insert(key, Entry { compiled, used, size });
    }
}

impl Entries {
    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.by_key.remove(key) {
            self.bytes -= key.1.len();
            self.compiled -= entry.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &str) -> (Key, Result<GrammarConstraint, GrammarError>) {
        let error = GrammarError(source.to_owned());
        (key(&GrammarSpec::Regex(source.to_owned())), Err(error))
    }

    #[test]
    fn the_least_recently_used_goes_first_and_all_bounds_hold() {
        let cache = Cache::default();
        let keys: Vec<Key> = (0..MAX_ENTRIES)
            .map(|number| {
                let (key, refused) = refusal(&number.to_string());
                cache.put(key.clone(), refused, 0);
                key
            })
            .collect();
        assert!(cache.get(&keys[0]).is_some());
        let (new, refused) = refusal("new");
        cache.put(new.clone(), refused, 0);
        assert!(cache.get(&keys[1]).is_none());
        assert!(cache.get(&keys[0]).is_some() && cache.get(&new).is_some());
        // One that takes all bytes, and one that takes more.
        let (large, refused) = refusal(&"x".repeat(MAX_SPEC_BYTES));
        cache.put(large.clone(), refused, 0);
        assert!(cache.get(&large).is_some() && cache.get(&new).is_none());
        let (larger, refused) = refusal(&"x".repeat(MAX_SPEC_BYTES + 1));
        cache.put(larger.clone(), refused, 0);
        assert!(cache.get(&larger).is_none() && cache.get(&large).is_some());
        let (heavy, refused) = refusal("heavy");
        cache.put(heavy.clone(), refused, MAX_COMPILED_BYTES + 1);
        assert!(cache.get(&heavy).is_none());
        let entries = cache.0.lock().expect("no test panics");
        assert_eq!((entries.by_key.len(), entries.bytes), (1, MAX_SPEC_BYTES));
    }

    #[test]
    fn kinds_with_the_same_source_differ() {
        let source = "start: /a/".to_owned();
        assert!(key(&GrammarSpec::Regex(source.clone())) != key(&GrammarSpec::Lark(source)));
    }
}
