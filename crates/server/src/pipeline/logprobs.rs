//! Log-probabilities of delivered tokens, and their JSON shapes.

use engine::TokenLogprob;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use step::{TokenId, TopToken};
use text::{Detokenizer, Tokenizer};

use crate::request::Endpoint;

/// Least log-probability that a client sees: JSON has no minus infinity.
const LEAST: f32 = -9999.0;

/// One token of a choice with its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token.
    pub token: TokenId,
    /// Its probability, and the most probable tokens at its position.
    pub logprob: TokenLogprob,
    /// Characters of the choice's text before it; a token that goes on with a character that an
    /// earlier one began starts where that character does.
    pub offset: usize,
}

/// Counts the characters before each token of one choice.
#[derive(Clone, Debug)]
pub struct Scorer {
    detokenizer: Detokenizer,
    /// Characters that are certain to stay.
    chars: usize,
    /// What would follow them if the text ended here: parts of a character, as U+FFFD.
    pending: String,
}

impl Scorer {
    /// For a choice whose text shows what `detokenizer` shows.
    pub fn new(detokenizer: Detokenizer) -> Self {
        Self {
            detokenizer,
            chars: 0,
            pending: String::new(),
        }
    }

    /// The next tokens of the choice, each with its entry of `logprobs`.
    pub fn push(&mut self, tokens: &[TokenId], logprobs: Box<[TokenLogprob]>) -> Vec<Scored> {
        let scored = tokens.iter().zip(logprobs).map(|(&token, logprob)| Scored {
            token,
            logprob,
            offset: self.advance(token),
        });
        scored.collect()
    }

    /// Where the text with `token` departs from the text without it, in characters.
    fn advance(&mut self, token: TokenId) -> usize {
        let fresh = self.detokenizer.push(&[token]);
        let pending = self.detokenizer.clone().finish();
        let with = fresh.chars().chain(pending.chars());
        let kept = self.pending.chars().zip(with);
        let offset = self.chars + kept.take_while(|(before, after)| before == after).count();
        self.chars += fresh.chars().count();
        self.pending = pending;
        offset
    }
}

/// `logprobs` of a choice or a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Logprobs<'a> {
    /// The tokens.
    pub scored: &'a [Scored],
    /// For their texts.
    pub tokenizer: &'a Tokenizer,
    /// Whose shape it has.
    pub endpoint: Endpoint,
}

impl Serialize for Logprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (scored, tokenizer) = (self.scored, self.tokenizer);
        match self.endpoint {
            Endpoint::Completions => {
                let each = |value: fn(&Scored) -> f32| scored.iter().map(value).collect();
                let text = |one: &Scored| tokenizer.token_text(one.token);
                let lists = Lists {
                    tokens: scored.iter().map(text).collect(),
                    token_logprobs: each(|one| clipped(one.logprob.logprob)),
                    top_logprobs: scored.iter().map(|one| Table(one, tokenizer)).collect(),
                    text_offset: scored.iter().map(|one| one.offset).collect(),
                };
                lists.serialize(serializer)
            }
            Endpoint::Chat => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("content", &Content(scored, tokenizer))?;
                map.end()
            }
        }
    }
}

/// The shape of completions: parallel lists.
#[derive(Serialize)]
struct Lists<'a> {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<Table<'a>>,
    text_offset: Vec<usize>,
}

/// The chosen token and the most probable ones by their texts. Of several with one text the
/// chosen counts, else the most probable.
struct Table<'a>(&'a Scored, &'a Tokenizer);

impl Serialize for Table<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(scored, tokenizer) = *self;
        let mut entries: Vec<(String, f32)> = Vec::new();
        let chosen = tokenizer.token_text(scored.token);
        entries.push((chosen, scored.logprob.logprob));
        for top in possible(scored) {
            let text = tokenizer.token_text(top.token);
            if entries.iter().all(|(known, _)| *known != text) {
                entries.push((text, top.logprob));
            }
        }
        // The order of the ranks; the chosen one keeps its place among equals.
        entries.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for (text, logprob) in entries {
            map.serialize_entry(&text, &clipped(logprob))?;
        }
        map.end()
    }
}

/// The shape of chats: one object a token.
struct Content<'a>(&'a [Scored], &'a Tokenizer);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(scored, tokenizer) = *self;
        let mut list = serializer.serialize_seq(Some(scored.len()))?;
        for one in scored {
            let top = |top: TopToken| Entry::new(top.token, top.logprob, tokenizer);
            list.serialize_element(&Token {
                entry: Entry::new(one.token, one.logprob.logprob, tokenizer),
                top_logprobs: possible(one).map(top).collect(),
            })?;
        }
        list.end()
    }
}

#[derive(Serialize)]
struct Token {
    #[serde(flatten)]
    entry: Entry,
    top_logprobs: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    token: String,
    logprob: f32,
    /// Null for an id that the tokenizer has no token for.
    bytes: Option<Vec<u8>>,
}

impl Entry {
    fn new(token: TokenId, logprob: f32, tokenizer: &Tokenizer) -> Self {
        Self {
            token: tokenizer.token_text(token),
            logprob: clipped(logprob),
            bytes: tokenizer.token_bytes(token),
        }
    }
}

/// The most probable tokens that can occur at all.
fn possible(scored: &Scored) -> impl Iterator<Item = TopToken> {
    let top = scored.logprob.top.iter().copied();
    top.filter(|top| top.logprob > f32::NEG_INFINITY)
}

/// Finite, and never the negative zero.
fn clipped(logprob: f32) -> f32 {
    if logprob >= LEAST {
        logprob.min(0.0) + 0.0
    } else {
        LEAST
    }
}

#[cfg(test)]
mod tests;
