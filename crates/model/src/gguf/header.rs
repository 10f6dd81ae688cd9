//! Checks the metadata of a GGUF file before it is parsed: the parser keeps every value, about
//! thirty bytes for one of the file, divides by the alignment, and does not name a tensor whose type
//! it does not know.

use crate::LoadError;

/// Maximum number of metadata values, elements of lists included.
const VALUES: u64 = 1 << 22;
/// Maximum bytes of one string.
const STRING: u64 = 1 << 24;
/// Maximum nesting of lists.
const DEPTH: usize = 8;
/// Types of values by their number in the file.
const STRING_TYPE: u32 = 8;
const LIST_TYPE: u32 = 9;

/// The types of tensors that are read, by their numbers in the file.
const READ: [(u32, &str); 15] = [
    (0, "F32"),
    (1, "F16"),
    (30, "BF16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
];
/// The names of other types by their numbers.
const OTHER: [(u32, &str); 17] = [
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
];

/// The fault of a file.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It ends early, or is too large.
    Corrupt(String),
    /// A key has an invalid value.
    Key(&'static str, &'static str, String),
    /// A tensor has a type of this number, which is not read.
    Type(String, u32),
}

impl Fault {
    pub(super) fn in_file(self, file: &str) -> LoadError {
        let file = file.to_owned();
        match self {
            Self::Corrupt(reason) => LoadError::Corrupt { file, reason },
            Self::Key(key, expected, found) => {
                LoadError::Key { file, key: key.to_owned(), expected: expected.to_owned(), found }
            }
            Self::Type(tensor, number) => {
                let named = OTHER.iter().find(|(other, _)| *other == number);
                let found = match named {
                    Some((_, name)) => (*name).to_owned(),
                    None => format!("type {number}"),
                };
                let expected = READ.map(|(_, name)| name).join(", ");
                LoadError::TensorType { file, tensor, expected, found }
            }
        }
    }
}

/// Reads a file from its start.
struct Reader<'a> {
    rest: &'a [u8],
    /// Bytes of a length: 4 in version 1, then 8.
    length: usize,
    /// Values seen.
    values: u64,
}

/// Checks the metadata of `file`. A file of another format or version passes: the parser names it.
pub(super) fn check(file: &[u8]) -> Result<(), Fault> {
    let mut reader = Reader { rest: file, length: 4, values: 0 };
    let (magic, version) = (reader.number(4)?, reader.number(4)?);
    if !magic_is_known(magic) || !(1..=3).contains(&version) {
        return Ok(());
    }
    reader.length = if version == 1 { 4 } else { 8 };
    let tensors = reader.number(reader.length)?;
    let count = reader.number(reader.length)?;
    for _ in 0..count {
        let name = reader.string()?;
        let kind = reader.kind()?;
        let value = reader.value(kind, 0)?;
        let alignment =
            value.filter(|value| name == b"general.alignment" && !value.is_power_of_two());
        if let Some(found) = alignment {
            let expected = "a power of two";
            return Err(Fault::Key("general.alignment", expected, found.to_string()));
        }
    }
    for _ in 0..tensors {
        let name = reader.string()?;
        for _ in 0..reader.number(4)? {
            reader.number(reader.length)?;
        }
        let kind = reader.kind()?;
        reader.number(8)?;
        if READ.iter().all(|(number, _)| *number != kind) {
            let name = String::from_utf8_lossy(name).into_owned();
            return Err(Fault::Type(name, kind));
        }
    }
    Ok(())
}

fn magic_is_known(magic: u64) -> bool {
    [*b"GGUF", *b"FUGG"].map(|name| u64::from(u32::from_le_bytes(name))).contains(&magic)
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], Fault> {
        let all = self.rest;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= all.len());
        let bytes =
            bytes.ok_or_else(|| Fault::Corrupt("the file ends in its metadata".to_owned()))?;
        let (taken, rest) = all.split_at(bytes);
        self.rest = rest;
        Ok(taken)
    }

    /// A number of at most eight bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, Fault> {
        let taken = self.take(bytes as u64)?;
        Ok(taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn kind(&mut self) -> Result<u32, Fault> {
        Ok(u32::try_from(self.number(4)?).unwrap_or(u32::MAX))
    }

    fn string(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.number(self.length)?;
        if length > STRING {
            let reason = format!("expected strings of at most {STRING} bytes, found {length}");
            return Err(Fault::Corrupt(reason));
        }
        self.take(length)
    }

    /// The value if it is a whole number of at most 32 bits.
    fn value(&mut self, kind: u32, depth: usize) -> Result<Option<u64>, Fault> {
        self.values += 1;
        if self.values > VALUES || depth > DEPTH {
            let reason =
                format!("expected at most {VALUES} metadata values in {DEPTH} levels, found more");
            return Err(Fault::Corrupt(reason));
        }
        match kind {
            // Numbers of one, two and four bytes.
            0 | 1 => self.number(1).map(Some),
            2 | 3 => self.number(2).map(Some),
            4 | 5 => self.number(4).map(Some),
            6 => self.number(4).map(|_| None),
            7 => self.number(1).map(|_| None),
            10..=12 => self.number(8).map(|_| None),
            STRING_TYPE => self.string().map(|_| None),
            LIST_TYPE => {
                let kind = self.kind()?;
                let count = self.number(self.length)?;
                for _ in 0..count {
                    self.value(kind, depth + 1)?;
                }
                Ok(None)
            }
            other => {
                Err(Fault::Corrupt(format!("expected a type of value from 0 to 12, found {other}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(0_u64.to_le_bytes());
        file.extend((entries.len() as u64).to_le_bytes());
        for (name, kind, value) in entries {
            file.extend((name.len() as u64).to_le_bytes());
            file.extend(name.as_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(*value);
        }
        file
    }

    fn list(kind: u32, count: u64, items: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &count.to_le_bytes(), items].concat()
    }

    #[test]
    fn a_type_that_is_not_read_is_named_with_its_tensor() {
        let tensor = |kind: u32| {
            let mut file = b"GGUF\x03\0\0\0".to_vec();
            file.extend(1_u64.to_le_bytes());
            file.extend(0_u64.to_le_bytes());
            file.extend([&4_u64.to_le_bytes()[..], b"a.bc"].concat());
            file.extend(1_u32.to_le_bytes());
            file.extend(32_u64.to_le_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(0_u64.to_le_bytes());
            file
        };
        for (kind, _) in READ {
            assert_eq!(check(&tensor(kind)), Ok(()));
        }
        let said = |kind| check(&tensor(kind)).unwrap_err().in_file("m.gguf").to_string();
        let start = "m.gguf: a.bc: expected the type F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, \
                     Q8_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, found ";
        assert_eq!(said(20), format!("{start}IQ4_NL"));
        assert_eq!(said(77), format!("{start}type 77"));
        let whole = tensor(0);
        assert!(check(&whole[..whole.len() - 1]).is_err());
    }

    #[test]
    fn what_the_parser_would_divide_by_or_keep_is_bounded() {
        let alignment = |value: u32| header(&[("general.alignment", 4, &value.to_le_bytes())]);
        assert_eq!(check(&alignment(32)), Ok(()));
        for value in [0, 3, u32::MAX] {
            let fault = Fault::Key("general.alignment", "a power of two", value.to_string());
            assert_eq!(check(&alignment(value)), Err(fault));
        }
        let bytes = vec![0; 1 << 23];
        let refused = [
            header(&[("a", 9, &list(0, 1 << 23, &bytes))]),
            header(&[("a", 9, &list(0, u64::MAX, &[]))]),
            header(&[("a", 9, &list(9, 1, &list(9, 1, &[]).repeat(20)))]),
            header(&[("a", 8, &u64::MAX.to_le_bytes())]),
            header(&[("a", 13, &[])]),
            b"GGUF\x03\0\0\0".to_vec(),
        ];
        for file in refused {
            assert!(matches!(check(&file), Err(Fault::Corrupt(_))));
        }
        assert_eq!(check(b"PK\x03\x04 another format"), Ok(()));
    }
}
