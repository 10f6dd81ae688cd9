//! Reads the entries of a GGUF file's tensors, and checks its metadata before it is parsed: the parser keeps every
//! value, about thirty bytes for one of the file, and divides by the alignment.

use super::types::{OTHER, TYPES, TensorInfo, TensorType};
use crate::LoadError;

/// Maximum number of metadata values, elements of lists included.
const VALUES: u64 = 1 << 22;
/// Maximum bytes of one string.
const STRING: u64 = 1 << 24;
/// Maximum number of tensors, and of a tensor's dimensions.
const TENSORS: u64 = 1 << 20;
const DIMENSIONS: u64 = 4;
/// Maximum nesting of lists.
const DEPTH: usize = 8;
/// Where a file states no other, tensors begin at multiples of this.
const ALIGNMENT: u64 = 32;
/// Types of values by their number in the file.
const STRING_TYPE: u32 = 8;
const LIST_TYPE: u32 = 9;

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
                let names: Vec<&str> = TYPES.iter().map(|kind| kind.name).collect();
                let expected = names.join(", ");
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

/// The start of a file.
pub(super) struct Header {
    /// The same metadata without tensors.
    pub(super) metadata: Vec<u8>,
    /// Names and entries of the tensors.
    pub(super) tensors: Vec<(String, TensorInfo)>,
    /// The first byte of the tensors.
    pub(super) start: u64,
}

/// Reads the header of `file`. One of another format or version has no tensors: the parser names it.
pub(super) fn read(file: &[u8]) -> Result<Header, Fault> {
    let mut reader = Reader { rest: file, length: 4, values: 0 };
    let (magic, version) = (reader.number(4)?, reader.number(4)?);
    if !magic_is_known(magic) || !(1..=3).contains(&version) {
        let metadata = file[..file.len().min(64)].to_vec();
        return Ok(Header { metadata, tensors: Vec::new(), start: 0 });
    }
    reader.length = if version == 1 { 4 } else { 8 };
    let length = reader.length;
    let tensors = reader.number(length)?;
    if tensors > TENSORS {
        let reason = format!("expected at most {TENSORS} tensors, found {tensors}");
        return Err(Fault::Corrupt(reason));
    }
    let count = reader.number(length)?;
    let mut alignment = ALIGNMENT;
    for _ in 0..count {
        let name = reader.string()?;
        let kind = reader.kind()?;
        let value = reader.value(kind, 0)?;
        let Some(found) = value.filter(|_| name == b"general.alignment") else {
            continue;
        };
        if !found.is_power_of_two() {
            let expected = "a power of two";
            return Err(Fault::Key("general.alignment", expected, found.to_string()));
        }
        alignment = found;
    }
    let mut metadata = file[..file.len() - reader.rest.len()].to_vec();
    metadata[8..][..length].fill(0);
    let tensors = (0..tensors).map(|_| reader.entry()).collect::<Result<_, _>>()?;
    let end = (file.len() - reader.rest.len()) as u64;
    Ok(Header { metadata, tensors, start: end.next_multiple_of(alignment) })
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

    /// The entry of a tensor.
    fn entry(&mut self) -> Result<(String, TensorInfo), Fault> {
        let name = self.string()?;
        // Strings of some files end with zeros.
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
        let mut dims = Vec::new();
        let count = self.number(4)?;
        if count > DIMENSIONS {
            let reason = format!("{name}: expected at most {DIMENSIONS} dimensions, found {count}");
            return Err(Fault::Corrupt(reason));
        }
        for _ in 0..count {
            dims.push(usize::try_from(self.number(self.length)?).unwrap_or(usize::MAX));
        }
        dims.reverse();
        let number = self.kind()?;
        let offset = self.number(8)?;
        match TensorType::of(number) {
            Some(kind) => Ok((name, TensorInfo { dims, kind, offset })),
            None => Err(Fault::Type(name, number)),
        }
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

    fn check(file: &[u8]) -> Result<(), Fault> {
        read(file).map(|_| ())
    }

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
        for kind in &TYPES {
            assert_eq!(check(&tensor(kind.number)), Ok(()));
        }
        let said = |kind| check(&tensor(kind)).unwrap_err().in_file("m.gguf").to_string();
        let start = "m.gguf: a.bc: expected the type F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, \
                     Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, \
                     IQ3_S, IQ2_S, IQ4_XS, IQ1_M, TQ1_0, TQ2_0, MXFP4, found ";
        assert_eq!(said(40), format!("{start}NVFP4"));
        assert_eq!(said(77), format!("{start}type 77"));
        let whole = tensor(0);
        assert!(check(&whole[..whole.len() - 1]).is_err());
        // The number of tensors, and of the dimensions of the first.
        for (start, number) in [(8, u32::MAX), (8 + 16 + 8 + 4, 5)] {
            let mut file = whole.clone();
            file[start..start + 4].copy_from_slice(&number.to_le_bytes());
            assert!(matches!(check(&file), Err(Fault::Corrupt(_))), "{start}");
        }
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
