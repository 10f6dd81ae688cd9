//! An incremental reader of server-sent events.

use std::fmt;

/// Most bytes of one line: far more than a chunk of a stream has.
const LINE_BYTES: usize = 16 << 20;

/// Collects bytes in any portions and returns the `data` of events.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Bytes of lines that were returned.
    read: usize,
    /// Bytes up to which no line ends after `read`.
    searched: usize,
}

/// A line is longer than [`LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "expected lines of at most {LINE_BYTES} bytes, found more")
    }
}

impl std::error::Error for TooLong {}

impl Lines {
    /// Adds bytes that arrived, after the complete lines were taken.
    ///
    /// # Errors
    /// If an incomplete line is too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.buffer.drain(..self.read);
        self.searched -= self.read;
        self.read = 0;
        if self.buffer.len() > LINE_BYTES {
            return Err(TooLong);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The data of the next complete line with data; comments and blank lines have none.
    pub fn next_data(&mut self) -> Option<Vec<u8>> {
        loop {
            let new = &self.buffer[self.searched..];
            let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let end = self.searched + end;
            let line = &self.buffer[self.read..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii_start);
            let data = data.map(<[u8]>::to_vec);
            self.read = end + 1;
            self.searched = self.read;
            if data.is_some() {
                return data;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_lines_in_whatever_portions_they_come() {
        let stream = b"data: {\"a\":1}\n\n: keep-alive\n\ndata:two\r\n\r\ndata: [DONE]\n\n";
        for size in [1, 3, 7, stream.len()] {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for part in stream.chunks(size) {
                lines.push(part).unwrap();
                found.extend(std::iter::from_fn(|| lines.next_data()));
            }
            assert_eq!(found, [&b"{\"a\":1}"[..], b"two", b"[DONE]"], "{size}");
        }
    }

    /// A server that never ends a line is refused, after work in proportion to its bytes.
    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut lines = Lines::default();
        let (part, mut pushed) = (vec![b'x'; 1_000], 0);
        while lines.push(&part).is_ok() {
            assert_eq!(lines.next_data(), None);
            pushed += part.len();
        }
        assert!((LINE_BYTES..LINE_BYTES + 2 * part.len()).contains(&pushed), "{pushed}");
    }
}
