//! Stop strings: the match that completes first ends a text, however it is cut into pieces.

/// Watches one text for stop strings.
///
/// The match that completes first wins, the longest of those that complete together. Text
/// that may be the beginning of a match is held back until it is decided. Work per byte of
/// text is amortised constant for each stop string.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    include: bool,
    armed: bool,
    done: bool,
    /// The end of the text so far that is not released.
    held: String,
    /// Bytes of text released.
    released: usize,
}

/// What [`StopMatcher::push`] lets go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Text that is certain to stay; after a match, all that ever will.
    pub text: String,
    /// The match, when this push completed one.
    pub matched: Option<StopMatch>,
}

/// A completed stop string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopMatch {
    /// Index of the stop string, in the order they were given.
    pub stop: usize,
    /// Where it ends in the whole text, in bytes.
    pub end: usize,
}

impl StopMatcher {
    /// A matcher for `stops`; empty strings match nothing. `include` keeps the stop string in
    /// the text.
    pub fn new<S: AsRef<str>>(stops: &[S], include: bool) -> Self {
        Self {
            stops: stops.iter().map(|stop| Stop::new(stop.as_ref())).collect(),
            include,
            armed: true,
            done: false,
            held: String::new(),
            released: 0,
        }
    }

    /// Whether a match that completes from here on ends the text (so it begins); a match
    /// completed while disarmed is passed over and its text stays.
    pub fn arm(&mut self, armed: bool) {
        self.armed = armed;
    }

    /// Whether a stop string has completed; later text is dropped.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes the next piece of the text.
    pub fn push(&mut self, text: &str) -> Released {
        if self.done {
            return Released::default();
        }
        if self.stops.is_empty() {
            self.released += text.len();
            return Released {
                text: text.to_owned(),
                matched: None,
            };
        }
        for (index, byte) in text.bytes().enumerate() {
            if let Some((stop, len)) = self.step(byte) {
                self.held.push_str(&text[..=index]);
                return self.complete(stop, len);
            }
        }
        self.held.push_str(text);
        let open = self
            .stops
            .iter()
            .map(|stop| stop.matched)
            .max()
            .unwrap_or(0);
        self.release(self.held.len() - open)
    }

    /// The text has ended: lets go what was held back.
    pub fn finish(&mut self) -> String {
        if self.done {
            return String::new();
        }
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        self.release(self.held.len()).text
    }

    /// Advances all stop strings by `byte`; index and length of the longest one completed.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut longest: Option<(usize, usize)> = None;
        for (index, stop) in self.stops.iter_mut().enumerate() {
            if stop.step(byte) {
                let len = stop.bytes.len();
                if longest.is_none_or(|(_, known)| len > known) {
                    longest = Some((index, len));
                }
            }
        }
        longest.filter(|_| self.armed)
    }

    /// Ends the text with the stop string of `len` bytes at the end of `held`.
    fn complete(&mut self, stop: usize, len: usize) -> Released {
        self.done = true;
        let end = self.released + self.held.len();
        let kept = if self.include {
            self.held.len()
        } else {
            self.held.len() - len
        };
        let mut released = self.release(kept);
        self.held.clear();
        released.matched = Some(StopMatch { stop, end });
        released
    }

    fn release(&mut self, len: usize) -> Released {
        self.released += len;
        Released {
            text: self.held.drain(..len).collect(),
            matched: None,
        }
    }
}

/// One stop string and how much of it the text so far ends with (Knuth, Morris, Pratt).
#[derive(Clone, Debug)]
struct Stop {
    bytes: Vec<u8>,
    /// `borders[n]`: length of the longest proper prefix of `bytes` that `bytes[..=n]` ends
    /// with.
    borders: Vec<usize>,
    /// Length of the longest prefix of `bytes`, short of all of it, that the text ends with.
    matched: usize,
}

impl Stop {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut borders = vec![0; bytes.len()];
        let mut border = 0;
        for end in 1..bytes.len() {
            while border > 0 && bytes[border] != bytes[end] {
                border = borders[border - 1];
            }
            border += usize::from(bytes[border] == bytes[end]);
            borders[end] = border;
        }
        Self {
            bytes,
            borders,
            matched: 0,
        }
    }

    /// Takes the next byte of the text; true if it completes the string.
    fn step(&mut self, byte: u8) -> bool {
        let Some(&last) = self.borders.last() else {
            return false;
        };
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(self.bytes[self.matched] == byte);
        let complete = self.matched == self.bytes.len();
        if complete {
            self.matched = last;
        }
        complete
    }
}
