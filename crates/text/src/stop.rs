//! Stop strings: the first completed match ends a text, independent of how the text is split.

use std::sync::Arc;

/// Searches one text for stop strings.
///
/// The match that completes first ends the text; of several that complete at the same byte, the
/// longest. Text that may be the start of a match is held back until the match completes or
/// fails. The work per byte of text is amortised constant for each stop string. Clones share the
/// stop strings and have match states of their own.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Arc<[Stop]>,
    /// For each stop string, the length of its longest proper prefix that is a suffix of the text.
    matched: Vec<usize>,
    include: bool,
    armed: bool,
    done: bool,
    /// The suffix of the text that is not released yet.
    held: String,
    /// Bytes of text released.
    released: usize,
}

/// The result of [`StopMatcher::push`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopOutput {
    /// Text that is certain to stay; after a match, the last text of the answer.
    pub text: String,
    /// The match, if this push completed one.
    pub matched: Option<StopMatch>,
}

/// A completed stop string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopMatch {
    /// Index of the stop string, in the order passed to [`StopMatcher::new`].
    pub stop: usize,
    /// End of the match in the complete text, in bytes.
    pub end: usize,
}

impl StopMatcher {
    /// A matcher for `stops`; empty strings never match. `include` keeps the stop string in the
    /// text.
    pub fn new<S: AsRef<str>>(stops: &[S], include: bool) -> Self {
        Self {
            stops: stops.iter().map(|stop| Stop::new(stop.as_ref())).collect(),
            matched: vec![0; stops.len()],
            include,
            armed: true,
            done: false,
            held: String::new(),
            released: 0,
        }
    }

    /// Sets whether a match that completes from now on ends the text; initially true. A match
    /// that completes while disarmed is ignored and its text stays.
    pub fn arm(&mut self, armed: bool) {
        self.armed = armed;
    }

    /// True if a stop string was completed; later text is dropped.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes the next piece of the text.
    pub fn push(&mut self, text: &str) -> StopOutput {
        if self.done {
            return StopOutput::default();
        }
        if self.stops.is_empty() {
            self.released += text.len();
            return StopOutput { text: text.to_owned(), matched: None };
        }
        for (index, byte) in text.bytes().enumerate() {
            if let Some((stop, len)) = self.step(byte) {
                self.held.push_str(&text[..=index]);
                return self.complete(stop, len);
            }
        }
        self.held.push_str(text);
        let open = self.matched.iter().copied().max().unwrap_or(0);
        self.release(self.held.len() - open)
    }

    /// Ends the text and returns what was held back.
    pub fn finish(&mut self) -> String {
        if self.done {
            return String::new();
        }
        self.matched.fill(0);
        self.release(self.held.len()).text
    }

    /// Advances all stop strings by `byte`. Returns index and length of the longest completed one.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut longest: Option<(usize, usize)> = None;
        for (index, (stop, matched)) in self.stops.iter().zip(&mut self.matched).enumerate() {
            if stop.step(matched, byte) {
                let len = stop.bytes.len();
                if longest.is_none_or(|(_, known)| len > known) {
                    longest = Some((index, len));
                }
            }
        }
        longest.filter(|_| self.armed)
    }

    /// Ends the text at a stop string of `len` bytes at the end of `held`.
    fn complete(&mut self, stop: usize, len: usize) -> StopOutput {
        self.done = true;
        let end = self.released + self.held.len();
        let kept = if self.include { self.held.len() } else { self.held.len() - len };
        let mut released = self.release(kept);
        self.held.clear();
        released.matched = Some(StopMatch { stop, end });
        released
    }

    fn release(&mut self, len: usize) -> StopOutput {
        self.released += len;
        StopOutput { text: self.held.drain(..len).collect(), matched: None }
    }
}

/// One stop string (Knuth, Morris, Pratt).
#[derive(Debug)]
struct Stop {
    bytes: Box<[u8]>,
    /// `borders[n]`: length of the longest proper prefix of `bytes` that is a suffix of
    /// `bytes[..=n]`.
    borders: Box<[usize]>,
}

impl Stop {
    fn new(text: &str) -> Self {
        let bytes: Box<[u8]> = text.as_bytes().into();
        let mut borders = vec![0; bytes.len()].into_boxed_slice();
        let mut border = 0;
        for end in 1..bytes.len() {
            while border > 0 && bytes[border] != bytes[end] {
                border = borders[border - 1];
            }
            border += usize::from(bytes[border] == bytes[end]);
            borders[end] = border;
        }
        Self { bytes, borders }
    }

    /// Takes the next byte of the text into the state `matched`. Returns whether it completes the
    /// stop string.
    fn step(&self, matched: &mut usize, byte: u8) -> bool {
        let Some(&last) = self.borders.last() else {
            return false;
        };
        while *matched > 0 && self.bytes[*matched] != byte {
            *matched = self.borders[*matched - 1];
        }
        *matched += usize::from(self.bytes[*matched] == byte);
        let complete = *matched == self.bytes.len();
        if complete {
            *matched = last;
        }
        complete
    }
}
