//! Incremental UTF-8 decoding that never splits a character.

/// Incremental form of `String::from_utf8_lossy`: the concatenated output equals the output for
/// the concatenated input, and a character is emitted only when its last byte has arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8Tail {
    /// The start of a character that may still be completed: at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Tail {
    /// Appends to `out` the characters that `bytes` completes; ill-formed bytes become U+FFFD
    /// immediately.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.pending.is_empty()
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            out.push_str(text);
            return;
        }
        self.pending.extend_from_slice(bytes);
        let mut start = 0;
        loop {
            let rest = &self.pending[start..];
            let Err(error) = std::str::from_utf8(rest) else {
                out.push_str(&String::from_utf8_lossy(rest));
                self.pending.clear();
                return;
            };
            let valid = error.valid_up_to();
            out.push_str(&String::from_utf8_lossy(&rest[..valid]));
            start += valid;
            let Some(bad) = error.error_len() else {
                self.pending.drain(..start);
                return;
            };
            out.push(char::REPLACEMENT_CHARACTER);
            start += bad;
        }
    }

    /// Appends U+FFFD if a character is incomplete.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}
