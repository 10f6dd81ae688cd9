//! The decoding table: the bytes of each token id.

use std::sync::Arc;

use decode::as_index;
use tokenizers::Tokenizer as HfTokenizer;

use crate::arena::Arena;
use crate::token_decoder::{Assembly, ItemStage, TokenDecoder, byte_level_bytes, fallback_byte};
use crate::{TextError, TokenId};

/// Ids must be below this, because tables are indexed by id.
const ID_LIMIT: u32 = 1 << 24;

/// The vocabulary of a tokenizer, ready for decoding.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// Converts tokens to text.
    pub(crate) decoder: TokenDecoder,
    /// Each token after the decoder's `before` stages, if it is not the first of a text; bytes in
    /// a byte-level vocabulary, otherwise UTF-8.
    rest: Arena,
    /// The same for the first token of a text, if the decoder maps it differently.
    first: Option<Arena>,
    special: Vec<bool>,
}

impl Vocabulary {
    /// The table of `tokenizer`, shared by all detokenizers.
    ///
    /// # Errors
    /// If the tokenizer's decoder is not supported, or an id is 2^24 or above.
    pub(crate) fn new(tokenizer: &HfTokenizer) -> Result<Arc<Self>, TextError> {
        let decoder = TokenDecoder::new(tokenizer)?;
        let largest = tokenizer.get_vocab(true).into_values().max();
        if let Some(id) = largest.filter(|id| *id >= ID_LIMIT) {
            let expected = "token ids below 2^24";
            return Err(TextError::value("tokenizer.json", "model.vocab", expected, id));
        }
        let len = largest.map_or(0, |id| id + 1);
        let added = tokenizer.get_added_vocabulary();
        let mut first = decoder.first_differs().then(Arena::default);
        let mut rest = Arena::default();
        let mut special = Vec::with_capacity(as_index(len));
        for id in 0..len {
            let token = tokenizer.id_to_token(id);
            special.push(token.as_deref().is_some_and(|token| added.is_special_token(token)));
            let piece = |is_first| token.as_ref().map(|token| piece(&decoder, token, is_first));
            rest.push(piece(false).as_deref());
            if let Some(first) = &mut first {
                first.push(piece(true).as_deref());
            }
        }
        Ok(Arc::new(Self { decoder, rest, first, special }))
    }

    /// One more than the largest id.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// True if `id` is omitted when special tokens are skipped.
    pub(crate) fn is_special(&self, id: TokenId) -> bool {
        self.special.get(as_index(id)).copied().unwrap_or(false)
    }

    /// The token's input to assembly; `None` for an id without a token.
    pub(crate) fn piece(&self, id: TokenId, first: bool) -> Option<&[u8]> {
        match &self.first {
            Some(arena) if first => arena.get(id),
            _ => self.rest.get(id),
        }
    }

    /// True if `id` adds the same bytes at the start of a text as elsewhere.
    pub(crate) fn same_at_start(&self, id: TokenId) -> bool {
        self.piece(id, true) == self.piece(id, false)
            && !self.bytes(id).is_some_and(|bytes| self.decoder.strips_start(&bytes))
    }

    /// The bytes that `id` adds to a text when it is not the first token.
    pub(crate) fn bytes(&self, id: TokenId) -> Option<Vec<u8>> {
        let piece = self.piece(id, false)?;
        if self.decoder.assembly != Assembly::ByteFallback {
            return Some(piece.to_vec());
        }
        if let Some(byte) = fallback_byte(piece) {
            return Some(vec![byte]);
        }
        let item = String::from_utf8_lossy(piece).into_owned();
        Some(apply(&self.decoder.after, item, false).into_bytes())
    }
}

/// Applies all `stages` to `item`.
pub(crate) fn apply(stages: &[ItemStage], item: String, first: bool) -> String {
    stages.iter().fold(item, |item, stage| stage.apply(item, first))
}

fn piece(decoder: &TokenDecoder, token: &str, first: bool) -> Vec<u8> {
    let mapped = apply(&decoder.before, token.to_owned(), first);
    match decoder.assembly {
        Assembly::ByteLevel => byte_level_bytes(&mapped),
        Assembly::Plain | Assembly::ByteFallback => mapped.into_bytes(),
    }
}
