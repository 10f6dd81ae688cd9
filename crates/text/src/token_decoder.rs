//! The `decoder` of a tokenizer.json, applied token by token.
//!
//! The format defines a decoder on a complete list of tokens. The decoders of language models
//! share a form that works incrementally: each token is mapped independently (only the first may
//! be mapped differently), tokens are assembled to text (byte runs become characters), the
//! assembled items are mapped, and the ends of the complete text are stripped.

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::strip::Strip;
use tokenizers::{Decoder, Tokenizer as HfTokenizer};

use crate::TextError;

/// Converts tokens to text.
#[derive(Debug)]
pub(crate) struct TokenDecoder {
    /// Stages that map each token.
    pub(crate) before: Vec<ItemStage>,
    /// Joins tokens to items.
    pub(crate) assembly: Assembly,
    /// Stages that map each assembled item; empty unless `assembly` is
    /// [`Assembly::ByteFallback`].
    pub(crate) after: Vec<ItemStage>,
    /// Characters cut at both ends of the text.
    pub(crate) strips: Vec<Strip>,
}

/// The stages that join tokens to text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assembly {
    /// Each token is an item of text.
    Plain,
    /// Each token is a byte string in the byte-level alphabet; the text is the lossy UTF-8 of
    /// all bytes.
    ByteLevel,
    /// `<0xNN>` tokens are bytes; a run of them is one item if it is valid UTF-8, otherwise one
    /// U+FFFD per byte. Any other token is an item.
    ByteFallback,
}

/// A map from item to item that depends only on the item and on whether it is the first.
#[derive(Debug)]
pub(crate) enum ItemStage {
    /// A decoder of the format that maps each item independently.
    Decoder(DecoderWrapper),
    /// Cuts characters at both ends.
    Strip(Strip),
    /// Adds a blank before every item except the first; used if there is no decoder.
    Blank,
}

impl TokenDecoder {
    /// The decoder of `tokenizer`.
    ///
    /// # Errors
    /// Names the stage that is not supported.
    pub(crate) fn new(tokenizer: &HfTokenizer) -> Result<Self, TextError> {
        let mut builder = Builder::default();
        match tokenizer.get_decoder() {
            None => builder.items.push(ItemStage::Blank),
            Some(decoder) => builder.add(decoder)?,
        }
        Ok(builder.build())
    }

    /// True if a token adds the same bytes at every place of a text except its start.
    pub(crate) fn bytes_are_fixed(&self) -> bool {
        let is_independent = |stage: &ItemStage| match stage {
            ItemStage::Blank => false,
            ItemStage::Strip(_) => true,
            ItemStage::Decoder(decoder) => !matches!(decoder, DecoderWrapper::WordPiece(_)),
        };
        self.before.iter().all(is_independent)
            && self.after.is_empty()
            && self.strips.iter().all(|strip| strip.stop == 0)
    }

    /// True if `bytes` are stripped at the start of a text but kept elsewhere.
    pub(crate) fn strips_start(&self, bytes: &[u8]) -> bool {
        self.strips.iter().any(|strip| {
            let mut content = [0; 4];
            strip.start > 0 && bytes.starts_with(strip.content.encode_utf8(&mut content).as_bytes())
        })
    }

    /// True if the first token or item is mapped differently from the others.
    pub(crate) fn first_differs(&self) -> bool {
        self.before.iter().any(ItemStage::first_differs)
    }
}

impl ItemStage {
    /// Maps `item`; an item that the decoder refuses stays unchanged.
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
                matches!(decoder, DecoderWrapper::Metaspace(_) | DecoderWrapper::WordPiece(_))
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

/// The bytes of `token` in the byte-level alphabet. A token with a character outside the alphabet
/// (an added token) stands for its own UTF-8.
pub(crate) fn byte_level_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_level_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte of a character of the byte-level alphabet: printable Latin-1 stands for itself, and
/// the characters from U+0100 on stand for the 68 other bytes in order.
fn byte_level_byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// `text` with up to `start` and `stop` occurrences of the strip's character removed at its ends.
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

/// Assigns the stages of a decoder to the fields of [`TokenDecoder`].
#[derive(Default)]
struct Builder {
    items: Vec<ItemStage>,
    /// The assembly and the item stages before it, once it is known.
    assembled: Option<(Vec<ItemStage>, Assembly)>,
    /// True if the following stages see one item: the complete text.
    fused: bool,
    strips: Vec<Strip>,
}

impl Builder {
    fn add(&mut self, decoder: &DecoderWrapper) -> Result<(), TextError> {
        match decoder {
            DecoderWrapper::Sequence(stages) => {
                for stage in stages.get_decoders() {
                    self.add(stage)?;
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
                    if self.fused { format!("{other:?} after Fuse") } else { format!("{other:?}") },
                ));
            }
        }
        Ok(())
    }

    fn assemble(&mut self, assembly: Assembly) {
        self.assembled = Some((std::mem::take(&mut self.items), assembly));
    }

    fn build(self) -> TokenDecoder {
        let (before, assembly, after) = match self.assembled {
            None => (self.items, Assembly::Plain, Vec::new()),
            Some((before, assembly)) => (before, assembly, self.items),
        };
        TokenDecoder { before, assembly, after, strips: self.strips }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_level_alphabet_holds_every_byte_once() {
        let mut bytes: Vec<u8> =
            (0..0x200).filter_map(char::from_u32).filter_map(byte_level_byte).collect();
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
