//! API keys. Only digests are kept, only names are shown.

use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Prefix of a key's digest in place of the key.
const DIGEST_MARK: &str = "sha256:";

/// The keys in effect, which a running server may replace; clones share them.
#[derive(Clone, Debug)]
pub struct KeyRing {
    keys: Arc<RwLock<Arc<ApiKeys>>>,
}

impl KeyRing {
    pub(crate) fn new(keys: ApiKeys) -> Self {
        Self { keys: Arc::new(RwLock::new(Arc::new(keys))) }
    }

    /// The keys now.
    pub fn get(&self) -> Arc<ApiKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Accepts `keys` instead, from the next request on. Requests that run go on.
    pub fn replace(&self, keys: ApiKeys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

/// The accepted keys; none = no key is required.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ApiKeys {
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    name: Arc<str>,
    /// SHA-256 of the key.
    digest: [u8; 32],
}

/// The reason why a key file is invalid; contains no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// An invalid line.
    #[error("line {line}: expected {expected}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The expected form.
        expected: &'static str,
    },
    /// No key: such a file would open the server to everybody.
    #[error("expected at least one line `name:key`, found none")]
    Empty,
}

impl ApiKeys {
    /// Reads lines `name:key` or `name:sha256:hex`. Skips blank lines and lines that begin with
    /// `#`; trims white space around a line.
    ///
    /// # Errors
    /// The first invalid line, or no entry at all.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = |expected| KeysError::Line { line: index + 1, expected };
            let (name, key) =
                line.split_once(':').ok_or_else(|| fault("`name:key` or `name:sha256:hex`"))?;
            let (name, key) = (name.trim(), key.trim());
            if name.is_empty() || key.is_empty() {
                return Err(fault("a name and a key, neither of them empty"));
            }
            let digest = match key.strip_prefix(DIGEST_MARK) {
                Some(hex) => digest_of_hex(hex).ok_or_else(|| fault("64 hexadecimal digits"))?,
                None => digest_of_key(key.as_bytes()),
            };
            keys.push(name, digest);
        }
        if keys.is_empty() {
            return Err(KeysError::Empty);
        }
        Ok(keys)
    }

    /// Adds `key` under `name`.
    #[must_use]
    pub fn with_key(mut self, name: &str, key: &str) -> Self {
        self.push(name, digest_of_key(key.as_bytes()));
        self
    }

    /// True if no key is required.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The name of `key`, if it is accepted. Runs in constant time over all entries.
    pub fn name_of(&self, key: &[u8]) -> Option<&str> {
        let digest = digest_of_key(key);
        let mut found = u32::MAX;
        for (index, entry) in (0u32..).zip(&self.entries) {
            let equal = entry.digest.ct_eq(&digest);
            found.conditional_assign(&index, equal);
        }
        let entry = self.entries.get(found as usize)?;
        Some(&entry.name)
    }

    fn push(&mut self, name: &str, digest: [u8; 32]) {
        let name = Arc::from(name);
        self.entries.push(Entry { name, digest });
    }
}

/// Shows names only.
impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.entries.iter().map(|entry| &entry.name);
        formatter.debug_list().entries(names).finish()
    }
}

fn digest_of_key(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

fn digest_of_hex(hex: &str) -> Option<[u8; 32]> {
    let digits = hex.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(nibble(pair[0])? * 16 + nibble(pair[1])?).ok()?;
    }
    Some(digest)
}
