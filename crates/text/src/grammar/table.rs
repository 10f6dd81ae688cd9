//! The tokens of a vocabulary by their bytes.

use std::sync::Arc;

use decode::as_index;
use llguidance::toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

use crate::{TextError, TokenId, Tokenizer};

/// The end of a text in the trie: a special token with a name that no grammar can contain.
const END: &[u8] = b"\xff<>";
/// Maximum bytes of a usable token: the trie limits its depth.
const TOKEN_BYTES: usize = 512;
/// Maximum bytes of all tokens together: the trie limits its nodes.
const VOCABULARY_BYTES: usize = 4_000_000;
/// Ids must be below this: the trie stores 24 bits of an id.
const ID_LIMIT: u32 = (1 << 24) - 2;
/// Maximum number of forced bytes tokenized at a time.
const FORCED_BYTES: usize = 512;

/// The usable tokens, as a trie over their bytes and as sets of ids.
pub(super) struct TokenTable {
    tokenizer: Arc<Tokenizer>,
    /// Bytes of each id, empty for unusable ids. The id `vocab_size` stands for the end of the
    /// text, which the grammar compiler requires.
    trie: TokTrie,
    vocab_size: u32,
    /// Tokens that may be allowed anywhere, and tokens that may be first: bit `t % 32` of word
    /// `t / 32`.
    usable: Vec<u32>,
    opening: Vec<u32>,
    /// Tokens with a quote, which may end a name, and those with a quote or a comma, after which one may come.
    quotes: Vec<u32>,
    separators: Vec<u32>,
}

impl TokenTable {
    pub(super) fn new(
        tokenizer: Arc<Tokenizer>,
        vocab_size: u32,
        shown: &[TokenId],
    ) -> Result<Self, TextError> {
        if !tokenizer.vocabulary().decoder.bytes_are_fixed() {
            return Err(TextError::value(
                "tokenizer.json",
                "decoder",
                "a decoder under which each token has the same bytes in every text",
                "another decoder; structured output is not available",
            ));
        }
        if vocab_size >= ID_LIMIT {
            let expected = format!("a vocabulary of less than {ID_LIMIT} ids");
            return Err(TextError::value("config.json", "vocab_size", &expected, vocab_size));
        }
        let words = as_index(vocab_size.div_ceil(32));
        let (mut usable, mut opening) = (vec![0; words], vec![0; words]);
        let (mut quotes, mut separators) = (vec![0; words], vec![0; words]);
        let bytes = |id| usable_bytes(&tokenizer, id, shown).unwrap_or_default();
        let mut tokens: Vec<Vec<u8>> = (0..vocab_size).map(bytes).collect();
        for (id, bytes) in (0..).zip(&tokens).filter(|(_, bytes)| !bytes.is_empty()) {
            insert(&mut usable, id);
            if bytes.contains(&b'"') {
                insert(&mut quotes, id);
            }
            if bytes.iter().any(|byte| matches!(byte, b'"' | b',')) {
                insert(&mut separators, id);
            }
            if tokenizer.vocabulary().same_at_start(id) {
                insert(&mut opening, id);
            }
        }
        let total: usize = tokens.iter().map(Vec::len).sum();
        if total >= VOCABULARY_BYTES {
            let expected = format!("tokens of less than {VOCABULARY_BYTES} bytes in total");
            return Err(TextError::value("tokenizer.json", "model.vocab", &expected, total));
        }
        tokens.push(END.to_vec());
        Ok(Self {
            trie: TokTrie::from(&TokRxInfo::new(vocab_size + 1, vocab_size), &tokens),
            tokenizer,
            vocab_size,
            usable,
            opening,
            quotes,
            separators,
        })
    }

    pub(super) fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    /// The tokens that a grammar may allow next, at the start of a text or later.
    pub(super) fn usable(&self, is_first: bool) -> &[u32] {
        if is_first { &self.opening } else { &self.usable }
    }

    /// The tokens with a quote.
    pub(super) fn quotes(&self) -> &[u32] {
        &self.quotes
    }

    /// The tokens with a quote or a comma.
    pub(super) fn separators(&self) -> &[u32] {
        &self.separators
    }

    /// The bytes of a usable token.
    pub(super) fn bytes(&self, token: TokenId) -> &[u8] {
        self.trie.token(token)
    }

    /// Tokenizes the `forced` bytes that follow `last`, up to the point where a longer token
    /// could replace the last ones. Empty if the bytes are not valid UTF-8 or have no tokens.
    pub(super) fn tokenize_forced(&self, last: Option<TokenId>, forced: &[u8]) -> Vec<TokenId> {
        let forced = valid_prefix(&forced[..forced.len().min(FORCED_BYTES)]);
        if forced.is_empty() {
            return Vec::new();
        }
        let text_of = |token| std::str::from_utf8(self.trie.token(token)).ok();
        let previous = last.and_then(|last| Some((last, text_of(last)?)));
        let mut tokens = self.encode(previous, forced);
        if tokens.is_empty() {
            tokens = self.encode(None, forced);
        }
        if tokens.is_empty() {
            tokens = self.greedy(forced.as_bytes());
        }
        let open = self.extensible_suffix(forced.as_bytes());
        let mut fixed = forced.len();
        while fixed > forced.len() - open
            && let Some(token) = tokens.pop()
        {
            fixed -= self.trie.token_len(token);
        }
        tokens
    }

    /// The tokenizer's tokens of `text` after a previous token and its text. Empty if the
    /// tokenizer would split the previous token differently, or if the tokens have other bytes
    /// than `text` (special tokens, added blanks).
    fn encode(&self, previous: Option<(TokenId, &str)>, text: &str) -> Vec<TokenId> {
        let before = previous.map_or("", |(_, before)| before);
        let Ok(mut tokens) = self.tokenizer.encode(&format!("{before}{text}"), false) else {
            return Vec::new();
        };
        if let Some((last, _)) = previous {
            if tokens.first() != Some(&last) {
                return Vec::new();
            }
            tokens.remove(0);
        }
        let fits = tokens.iter().all(|token| contains(&self.usable, *token));
        if !fits || self.trie.decode_raw(&tokens) != text.as_bytes() {
            return Vec::new();
        }
        tokens
    }

    /// The longest matching tokens from left to right; empty if a byte has no token.
    fn greedy(&self, bytes: &[u8]) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        let mut position = 0;
        while position < bytes.len() {
            let (token, len) = self.trie.prefix_token_id(&bytes[position..]);
            if len == 0 {
                return Vec::new();
            }
            tokens.push(token);
            position += len;
        }
        tokens
    }

    /// Length of the longest suffix of `bytes` that is a proper prefix of a token.
    fn extensible_suffix(&self, bytes: &[u8]) -> usize {
        let longest = bytes.len().min(self.trie.max_token_len());
        let extensible = |len: &usize| self.trie.has_extensions(&bytes[bytes.len() - len..]);
        (1..=longest).rev().find(extensible).unwrap_or(0)
    }
}

/// The table's interface to the grammar compiler.
pub(super) struct Env(pub(super) Arc<TokenTable>);

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.0.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy(bytes)
    }

    /// False: `TokenTable` computes forced tokens, so every tokenization of a valid text is
    /// allowed.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// Adds `id` to a set.
fn insert(set: &mut [u32], id: TokenId) {
    set[as_index(id / 32)] |= 1 << (id % 32);
}

/// Removes `id` from a set.
pub(super) fn remove(set: &mut [u32], id: TokenId) {
    if let Some(word) = set.get_mut(as_index(id / 32)) {
        *word &= !(1 << (id % 32));
    }
}

/// The ids that are in both sets, in ascending order.
pub(super) fn members(one: &[u32], other: &[u32]) -> impl Iterator<Item = TokenId> {
    let words = (0..).zip(one.iter().zip(other)).map(|(index, (one, other))| (index, one & other));
    words.flat_map(|(index, word): (u32, u32)| {
        (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 32 + bit)
    })
}

/// True if `id` is in a set.
pub(super) fn contains(set: &[u32], id: TokenId) -> bool {
    let word = set.get(as_index(id / 32));
    word.is_some_and(|word| word >> (id % 32) & 1 == 1)
}

/// The bytes that `id` adds to a text, if a grammar may use it. Excluded are special tokens that
/// are not `shown`, tokens that end a text, and tokens with a byte 0xff, which UTF-8 never contains and the trie
/// uses as the marker of special tokens.
fn usable_bytes(tokenizer: &Tokenizer, id: TokenId, shown: &[TokenId]) -> Option<Vec<u8>> {
    if tokenizer.is_special(id) && !shown.contains(&id) || tokenizer.eos_ids().contains(&id) {
        return None;
    }
    let marker = TokTrie::SPECIAL_TOKEN_MARKER;
    let bytes = tokenizer.token_bytes(id)?;
    (bytes.len() <= TOKEN_BYTES && !bytes.contains(&marker)).then_some(bytes)
}

/// The longest prefix of `bytes` that is valid UTF-8.
fn valid_prefix(bytes: &[u8]) -> &str {
    let chunk = bytes.utf8_chunks().next();
    chunk.map(|chunk| chunk.valid()).unwrap_or_default()
}
