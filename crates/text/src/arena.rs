//! Byte strings indexed by token id, in one allocation.

use decode::as_index;

/// Immutable byte strings with the ids `0..len`; an id may have no string.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    /// End of each string in `bytes`; a string starts at the end of the previous one.
    ends: Vec<u32>,
    present: Vec<bool>,
}

impl Arena {
    /// Appends the string of the next id; `None` if the id has no string.
    pub(crate) fn push(&mut self, string: Option<&[u8]>) {
        self.bytes.extend_from_slice(string.unwrap_or_default());
        let end = u32::try_from(self.bytes.len()).expect("a vocabulary has less than 4 GiB");
        self.ends.push(end);
        self.present.push(string.is_some());
    }

    /// The string of `id`; `None` if the id has no string or is out of range.
    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = as_index(id);
        if !*self.present.get(id)? {
            return None;
        }
        let start = if id == 0 { 0 } else { as_index(self.ends[id - 1]) };
        Some(&self.bytes[start..as_index(self.ends[id])])
    }

    /// Number of ids, including those without a string.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}
