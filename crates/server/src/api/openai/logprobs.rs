//! `logprobs` of completions and of chats.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use step::{TokenId, TopToken};
use text::Tokenizer;

use crate::pipeline::logprobs::ScoredToken;

/// Minimum log-probability that a client sees: JSON has no minus infinity.
const MIN_LOGPROB: f32 = -9999.0;

/// Tokens with their log-probabilities, and the tokenizer for their texts.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLogprobs<'a> {
    /// The tokens.
    pub scored: &'a [ScoredToken],
    /// For their texts.
    pub tokenizer: &'a Tokenizer,
    /// True if tokens are named by their ids, as `token_id:42`.
    pub by_id: bool,
}

impl AnswerLogprobs<'_> {
    fn name(&self, token: TokenId) -> String {
        match self.by_id {
            true => format!("token_id:{token}"),
            false => self.tokenizer.token_text(token),
        }
    }

    fn entry(&self, token: TokenId, logprob: f32) -> Entry {
        Entry {
            token: self.name(token),
            logprob: clipped(logprob),
            bytes: self.tokenizer.token_bytes(token),
        }
    }
}

/// `logprobs` of a completion: parallel lists.
#[derive(Clone, Copy, Debug)]
pub struct CompletionLogprobs<'a>(pub AnswerLogprobs<'a>);

impl<'a> From<AnswerLogprobs<'a>> for CompletionLogprobs<'a> {
    fn from(logprobs: AnswerLogprobs<'a>) -> Self {
        Self(logprobs)
    }
}

impl<'a> From<AnswerLogprobs<'a>> for ChatLogprobs<'a> {
    fn from(logprobs: AnswerLogprobs<'a>) -> Self {
        Self(logprobs)
    }
}

impl Serialize for CompletionLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let scored = self.0.scored;
        let text = |one: &ScoredToken| self.0.name(one.token);
        let logprob = |one: &ScoredToken| clipped(one.logprob.logprob);
        let lists = Lists {
            tokens: scored.iter().map(text).collect(),
            token_logprobs: scored.iter().map(logprob).collect(),
            top_logprobs: scored.iter().map(|one| Table(one, self.0)).collect(),
            text_offset: scored.iter().map(|one| one.offset).collect(),
        };
        lists.serialize(serializer)
    }
}

/// `logprobs` of a chat: one object per token.
#[derive(Clone, Copy, Debug)]
pub struct ChatLogprobs<'a>(pub AnswerLogprobs<'a>);

impl Serialize for ChatLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("content", &Content(self.0))?;
        map.end()
    }
}

#[derive(Serialize)]
struct Lists<'a> {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<Table<'a>>,
    text_offset: Vec<usize>,
}

/// The chosen token and the most probable ones by their texts. Of several with one text the
/// chosen counts, else the most probable.
struct Table<'a>(&'a ScoredToken, AnswerLogprobs<'a>);

impl Serialize for Table<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(scored, answer) = *self;
        let mut entries: Vec<(String, f32)> = Vec::new();
        let chosen = answer.name(scored.token);
        entries.push((chosen, scored.logprob.logprob));
        for top in possible(scored) {
            let text = answer.name(top.token);
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

struct Content<'a>(AnswerLogprobs<'a>);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.scored.len()))?;
        for one in self.0.scored {
            let top = |top: TopToken| self.0.entry(top.token, top.logprob);
            list.serialize_element(&Token {
                entry: self.0.entry(one.token, one.logprob.logprob),
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

/// The most probable tokens that can occur at all.
fn possible(scored: &ScoredToken) -> impl Iterator<Item = TopToken> {
    let top = scored.logprob.top.iter().copied();
    top.filter(|top| top.logprob > f32::NEG_INFINITY)
}

/// Finite, and never the negative zero.
fn clipped(logprob: f32) -> f32 {
    if logprob >= MIN_LOGPROB { logprob.min(0.0) + 0.0 } else { MIN_LOGPROB }
}

#[cfg(test)]
mod tests;
