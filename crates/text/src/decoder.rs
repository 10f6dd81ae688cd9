//! The `decoder` of a tokenizer.json as a plan that runs token by token.
//!
//! The format defines a decoder on a whole list of tokens. Those of language models have a
//! common shape that needs no list: every token is mapped by itself (only the first may
//! differ), tokens are assembled to text (byte runs become characters), the assembled items
//! are mapped, and the ends of the whole text are stripped.

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::strip::Strip;
use tokenizers::{Decoder, Tokenizer as HfTokenizer};

use crate::TextError;

/// How tokens become text.
#[derive(Debug)]
pub(crate) struct DecoderPlan {
    /// Maps each token.
    pub(crate) before: Vec<ItemStage>,
    /// Joins tokens.
    pub(crate) assembly: Assembly,
    /// Maps each assembled item; empty unless `assembly` is [`Assembly::ByteFallback`].
    pub(crate) after: Vec<ItemStage>,
    /// Cuts characters at both ends of the text.
    pub(crate) strips: Vec<Strip>,
}

/// What joins tokens to text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assembly {
    /// Each token is an item of text.
    Plain,
    /// Each token is a string of bytes in the byte-level alphabet; the text is their
    /// lossy UTF-8.
    ByteLevel,
    /// `<0xNN>` tokens are bytes, and a run of them is one item if it is valid UTF-8,
    /// one U+FFFD per byte if not; any other token is an item.
    ByteFallback,
}

/// A map from an item to an item that depends on nothing else than whether it is the first.
#[derive(Debug)]
pub(crate) enum ItemStage {
    /// A decoder of the format that maps items one by one.
    Decoder(DecoderWrapper),
    /// Cuts characters at both ends.
    Strip(Strip),
    /// A blank before every item but the first: what no decoder at all means.
    Blank,
}

impl DecoderPlan {
    /// The plan of the decoder of `tokenizer`, or which of its parts has no such plan.
    pub(crate) fn new(tokenizer: &HfTokenizer) -> Result<Self, TextError> {
        let mut builder = Builder::default();
        match tokenizer.get_decoder() {
            None => builder.items.push(ItemStage::Blank),
            Some(decoder) => builder.add(decoder)?,
        }
        Ok(builder.build())
    }

    /// Whether a token adds the same bytes wherever it stands, the beginning of a text apart.
    pub(crate) fn bytes_are_fixed(&self) -> bool {
        let by_itself = |stage: &ItemStage| match stage {
            ItemStage::Blank => false,
            ItemStage::Strip(_) => true,
            ItemStage::Decoder(decoder) => !matches!(decoder, DecoderWrapper::WordPiece(_)),
        };
        self.before.iter().all(by_itself)
            && self.after.is_empty()
            && self.strips.iter().all(|strip| strip.stop == 0)
    }

    /// Whether the beginning of a text loses `bytes` that it would keep elsewhere.
    pub(crate) fn strips_start(&self, bytes: &[u8]) -> bool {
        self.strips.iter().any(|strip| {
            let mut content = [0; 4];
            strip.start > 0 && bytes.starts_with(strip.content.encode_utf8(&mut content).as_bytes())
        })
    }

    /// Whether the first token or item is mapped differently from others.
    pub(crate) fn first_differs(&self) -> bool {
        self.before.iter().any(ItemStage::first_differs)
    }
}

impl ItemStage {
    /// The image of `item`; an item that the decoder refuses stays as it is.
    pub(crate) fn apply(&self, item: String, first: bool) -> String {
        match self {
            Self::Blank if first => item,
            Self::Blank => format!(" {item}"),
            Self::Strip(strip) => strip_ends(&item, strip).to_owned(),
            Self::Decoder(decoder) => {
                let mut items = vec![item.clone()];
                if !first {
                    items.insert(0, String::new());
                }
                let mapped = decoder.decode_chain(items).ok();
                mapped.and_then(|mut items| items.pop()).unwrap_or(item)
            }
        }
    }

    fn first_differs(&self) -> bool {
        match self {
            Self::Blank => true,
            Self::Strip(_) => false,
            Self::Decoder(decoder) => {
                matches!(
                    decoder,
                    DecoderWrapper::Metaspace(_) | DecoderWrapper::WordPiece(_)
                )
            }
        }
    }
}

/// The byte of a byte-fallback token `<0xNN>`.
pub(crate) fn fallback_byte(token: &[u8]) -> Option<u8> {
    if token.len() != 6 {
        return None;
    }
    let digits = token.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The bytes that `token` stands for in the byte-level alphabet; a token with a character
/// outside it (an added one) stands for its own UTF-8.
pub(crate) fn byte_level_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_level_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte behind a character of the byte-level alphabet: printable Latin-1 stands for
/// itself, and the 68 other bytes, in order, for the characters from U+0100 on.
fn byte_level_byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// `text` without up to `start` and `stop` occurrences of the strip's character at its ends.
fn strip_ends<'a>(text: &'a str, strip: &Strip) -> &'a str {
    let mut text = text;
    for _ in 0..strip.start {
        text = text.strip_prefix(strip.content).unwrap_or(text);
    }
    for _ in 0..strip.stop {
        text = text.strip_suffix(strip.content).unwrap_or(text);
    }
    text
}

/// Sorts the parts of a decoder into the plan's places.
#[derive(Default)]
struct Builder {
    items: Vec<ItemStage>,
    /// Item stages in front of the assembly, once there is one.
    assembled: Option<(Vec<ItemStage>, Assembly)>,
    /// From here on there is one item: the whole text.
    fused: bool,
    strips: Vec<Strip>,
}

impl Builder {
    fn add(&mut self, decoder: &DecoderWrapper) -> Result<(), TextError> {
        match decoder {
            DecoderWrapper::Sequence(parts) => {
                for part in parts.get_decoders() {
                    self.add(part)?;
                }
            }
            DecoderWrapper::Fuse(_) => self.fused = true,
            DecoderWrapper::Strip(strip) if self.fused => self.strips.push(strip.clone()),
            DecoderWrapper::Strip(strip) => self.items.push(ItemStage::Strip(strip.clone())),
            DecoderWrapper::Replace(_)
            | DecoderWrapper::Metaspace(_)
            | DecoderWrapper::WordPiece(_)
                if !self.fused =>
            {
                self.items.push(ItemStage::Decoder(decoder.clone()));
            }
            DecoderWrapper::ByteLevel(_) if !self.fused && self.assembled.is_none() => {
                self.assemble(Assembly::ByteLevel);
                self.fused = true;
            }
            DecoderWrapper::ByteFallback(_) if !self.fused && self.assembled.is_none() => {
                self.assemble(Assembly::ByteFallback);
            }
            other => {
                return Err(TextError::value(
                    "tokenizer.json",
                    "decoder",
                    "ByteLevel, or Replace, Metaspace, WordPiece, Strip, ByteFallback before Fuse \
                     and Strip after it",
                    if self.fused {
                        format!("{other:?} after Fuse")
                    } else {
                        format!("{other:?}")
                    },
                ));
            }
        }
        Ok(())
    }

    fn assemble(&mut self, assembly: Assembly) {
        self.assembled = Some((std::mem::take(&mut self.items), assembly));
    }

    fn build(self) -> DecoderPlan {
        let (before, assembly, after) = match self.assembled {
            None => (self.items, Assembly::Plain, Vec::new()),
            Some((before, assembly)) => (before, assembly, self.items),
        };
        DecoderPlan {
            before,
            assembly,
            after,
            strips: self.strips,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_level_alphabet_holds_every_byte_once() {
        let mut bytes: Vec<u8> = (0..0x200)
            .filter_map(char::from_u32)
            .filter_map(byte_level_byte)
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_level_bytes("Ġa"), b" a");
        assert_eq!(byte_level_bytes("Ċ"), b"\n");
        assert_eq!(byte_level_bytes("a b"), b"a b");
    }

    #[test]
    fn only_six_characters_make_a_fallback_byte() {
        assert_eq!(fallback_byte(b"<0xE2>"), Some(0xe2));
        assert_eq!(fallback_byte(b"<0xe2>"), Some(0xe2));
        assert_eq!(fallback_byte("<0x\u{e9}>".as_bytes()), None);
        assert_eq!(fallback_byte(b"<0xE>"), None);
        assert_eq!(fallback_byte(b"<0xGG>"), None);
    }
}
