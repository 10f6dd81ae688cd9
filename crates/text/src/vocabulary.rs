//! What each token id stands for: the table that decoding reads.

use std::sync::Arc;

use tokenizers::Tokenizer as HfTokenizer;

use crate::arena::Arena;
use crate::decoder::{Assembly, DecoderPlan, ItemStage, byte_level_bytes, fallback_byte};
use crate::{TextError, TokenId};

/// Ids from here on are refused: tables are indexed by id.
const ID_LIMIT: u32 = 1 << 24;

/// The vocabulary of a tokenizer, ready for decoding.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// How tokens become text.
    pub(crate) plan: DecoderPlan,
    /// Each token after the plan's first maps, where it is not the first of a text; bytes in
    /// a byte-level vocabulary, UTF-8 in the others.
    rest: Arena,
    /// The same for the first token of a text, where that differs.
    first: Option<Arena>,
    special: Vec<bool>,
}

impl Vocabulary {
    /// The table of `tokenizer`, to be shared by all detokenizers.
    ///
    /// # Errors
    /// A decoder that has no plan, or an id of 2^24 and above.
    pub(crate) fn new(tokenizer: &HfTokenizer) -> Result<Arc<Self>, TextError> {
        let plan = DecoderPlan::new(tokenizer)?;
        let largest = tokenizer.get_vocab(true).into_values().max();
        if let Some(id) = largest.filter(|id| *id >= ID_LIMIT) {
            let expected = "token ids below 2^24";
            return Err(TextError::value(
                "tokenizer.json",
                "model.vocab",
                expected,
                id,
            ));
        }
        let len = largest.map_or(0, |id| id + 1);
        let added = tokenizer.get_added_vocabulary();
        let mut first = plan.first_differs().then(Arena::default);
        let mut rest = Arena::default();
        let mut special = Vec::with_capacity(len as usize);
        for id in 0..len {
            let token = tokenizer.id_to_token(id);
            special.push(
                token
                    .as_deref()
                    .is_some_and(|token| added.is_special_token(token)),
            );
            let piece = |is_first| token.as_ref().map(|token| piece(&plan, token, is_first));
            rest.push(piece(false).as_deref());
            if let Some(first) = &mut first {
                first.push(piece(true).as_deref());
            }
        }
        Ok(Arc::new(Self {
            plan,
            rest,
            first,
            special,
        }))
    }

    /// One more than the largest id.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether skipping special tokens leaves `id` out.
    pub(crate) fn is_special(&self, id: TokenId) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// The token for assembly; `None` for an id without a token.
    pub(crate) fn piece(&self, id: TokenId, first: bool) -> Option<&[u8]> {
        match &self.first {
            Some(arena) if first => arena.get(id),
            _ => self.rest.get(id),
        }
    }

    /// Whether `id` adds the same bytes at the beginning of a text as elsewhere.
    pub(crate) fn opens_unchanged(&self, id: TokenId) -> bool {
        self.piece(id, true) == self.piece(id, false)
            && !self
                .bytes(id)
                .is_some_and(|bytes| self.plan.strips_start(&bytes))
    }

    /// The bytes that `id` adds to a text which it does not begin.
    pub(crate) fn bytes(&self, id: TokenId) -> Option<Vec<u8>> {
        let piece = self.piece(id, false)?;
        if self.plan.assembly != Assembly::ByteFallback {
            return Some(piece.to_vec());
        }
        if let Some(byte) = fallback_byte(piece) {
            return Some(vec![byte]);
        }
        let item = String::from_utf8_lossy(piece).into_owned();
        Some(apply(&self.plan.after, item, false).into_bytes())
    }
}

/// `item` through all `stages`.
pub(crate) fn apply(stages: &[ItemStage], item: String, first: bool) -> String {
    stages
        .iter()
        .fold(item, |item, stage| stage.apply(item, first))
}

fn piece(plan: &DecoderPlan, token: &str, first: bool) -> Vec<u8> {
    let mapped = apply(&plan.before, token.to_owned(), first);
    match plan.assembly {
        Assembly::ByteLevel => byte_level_bytes(&mapped),
        Assembly::Plain | Assembly::ByteFallback => mapped.into_bytes(),
    }
}
