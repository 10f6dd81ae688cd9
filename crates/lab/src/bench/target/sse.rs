//! An incremental reader of server-sent events.

/// Collects bytes in any portions and returns the `data` of events.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    read: usize,
}

impl Lines {
    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next complete line with data; comments and blank lines have none.
    pub fn next_data(&mut self) -> Option<Vec<u8>> {
        loop {
            let rest = &self.buffer[self.read..];
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii_start);
            let data = data.map(<[u8]>::to_vec);
            self.read += end + 1;
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
                lines.push(part);
                found.extend(std::iter::from_fn(|| lines.next_data()));
            }
            assert_eq!(found, [&b"{\"a\":1}"[..], b"two", b"[DONE]"], "{size}");
        }
    }
}
