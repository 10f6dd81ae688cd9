//! The beginning of a call's JSON: its name and the key of its arguments.

/// The beginning of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The beginning of a call that is not complete.
    Open,
    /// A call of the named function; the arguments begin at this byte.
    Call(String, usize),
    /// Something else.
    Other,
}

/// A text that is read from its start.
struct Cursor<'a> {
    text: &'a str,
    position: usize,
}

/// The reason why a text is no complete head.
enum Miss {
    Open,
    Other,
}

impl<'a> Cursor<'a> {
    fn blanks(&mut self) {
        let rest = &self.text[self.position..];
        self.position += rest.len() - rest.trim_start().len();
    }

    /// Skips blanks and `expected`.
    fn take(&mut self, expected: &str) -> Result<(), Miss> {
        self.blanks();
        let rest = &self.text[self.position..];
        if rest.starts_with(expected) {
            self.position += expected.len();
            return Ok(());
        }
        Err(if expected.starts_with(rest) { Miss::Open } else { Miss::Other })
    }

    /// Skips the text up to `end` and `end` itself, and returns it.
    fn until(&mut self, end: char) -> Result<&'a str, Miss> {
        let rest = &self.text[self.position..];
        let length = rest.find(end).ok_or(Miss::Open)?;
        self.position += length + end.len_utf8();
        Ok(&rest[..length])
    }
}

/// Reads `{"name": "NAME", "KEY":` at the start of `text`.
pub(super) fn json(text: &str, key: &str) -> Head {
    head(text, |cursor| {
        cursor.take("{")?;
        cursor.take("\"name\"")?;
        cursor.take(":")?;
        cursor.take("\"")?;
        let name = cursor.until('"')?;
        cursor.take(",")?;
        cursor.take(&format!("\"{key}\""))?;
        cursor.take(":")?;
        // The arguments are an object: blanks before it are no part of them.
        cursor.take("{")?;
        cursor.position -= 1;
        Ok(name)
    })
}

/// Reads `call:NAME` up to the brace of the arguments at the start of `text`.
pub(super) fn gemma(text: &str) -> Head {
    head(text, |cursor| {
        cursor.take("call:")?;
        let name = cursor.until('{')?;
        cursor.position -= 1;
        Ok(name.trim())
    })
}

/// Reads `<function=NAME>` at the start of `text`.
pub(super) fn function(text: &str) -> Head {
    head(text, |cursor| {
        cursor.take("<function=")?;
        cursor.until('>')
    })
}

fn head<'a>(text: &'a str, read: impl FnOnce(&mut Cursor<'a>) -> Result<&'a str, Miss>) -> Head {
    let mut cursor = Cursor { text, position: 0 };
    match read(&mut cursor) {
        Ok(name) => Head::Call(name.to_owned(), cursor.position),
        Err(Miss::Open) => Head::Open,
        Err(Miss::Other) => Head::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_is_open_until_the_arguments_begin() {
        let text = "\n{\"name\": \"add\", \"arguments\": {";
        for end in 0..text.len() {
            assert_eq!(json(&text[..end], "arguments"), Head::Open, "{end}");
        }
        let call = Head::Call("add".to_owned(), text.len() - 1);
        assert_eq!(json(text, "arguments"), call);
        assert_eq!(json("{\"name\": 1", "arguments"), Head::Other);
        assert_eq!(json(text, "parameters"), Head::Other);
        assert_eq!(gemma("call:add{"), Head::Call("add".to_owned(), 8));
        assert_eq!(gemma("cal"), Head::Open);
    }
}
