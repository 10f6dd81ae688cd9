//! The arguments of calls of Gemma 4, read as JSON.

use serde_json::Value;

/// The mark at the beginning and the end of a text.
pub(crate) const QUOTE: &str = "<|\"|>";

/// Converts arguments to JSON as they arrive.
#[derive(Clone, Debug, Default)]
pub(super) struct ToJson {
    depth: usize,
    in_text: bool,
    /// A key, a number or a name that is not complete.
    word: String,
}

impl ToJson {
    /// Reads from `text`: the bytes taken, the JSON made, whether the arguments end. The beginning
    /// of a quote is left for the next call.
    pub(super) fn read(&mut self, text: &str) -> (usize, String, bool) {
        let (mut taken, mut made) = (0, String::new());
        while taken < text.len() {
            let rest = &text[taken..];
            if rest.starts_with(QUOTE) {
                made.push('"');
                self.in_text = !self.in_text;
                taken += QUOTE.len();
                continue;
            }
            if QUOTE.starts_with(rest) {
                break;
            }
            let Some(c) = rest.chars().next() else { break };
            taken += c.len_utf8();
            if self.in_text {
                let escaped = Value::from(c.to_string()).to_string();
                made.push_str(&escaped[1..escaped.len() - 1]);
            } else if self.plain(c, &mut made) {
                return (taken, made, true);
            }
        }
        (taken, made, false)
    }

    /// Takes a character outside texts; whether the arguments end.
    fn plain(&mut self, c: char, made: &mut String) -> bool {
        if !"{}[],:".contains(c) {
            self.word.push(c);
            return false;
        }
        let word = std::mem::take(&mut self.word);
        match c {
            ':' => made.push_str(&Value::from(word.trim()).to_string()),
            _ => made.push_str(word.trim()),
        }
        made.push(c);
        match c {
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        c == '}' && self.depth == 0
    }
}
