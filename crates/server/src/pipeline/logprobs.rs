//! Log-probabilities of delivered tokens, and where each token starts in the text.

use engine::TokenLogprob;
use step::TokenId;
use text::Detokenizer;

/// One token of a choice with its log-probability.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredToken {
    /// The token.
    pub token: TokenId,
    /// Its log-probability, and the most probable tokens at its position.
    pub logprob: TokenLogprob,
    /// Number of characters before it in the choice's text. A token that continues a character of
    /// earlier tokens starts where that character does.
    pub offset: usize,
}

/// Counts the characters before each token of one choice.
#[derive(Clone, Debug)]
pub struct Scorer {
    detokenizer: Detokenizer,
    /// Number of complete characters.
    chars: usize,
    /// The text of an incomplete character if the text ended here, as U+FFFD.
    pending: String,
}

impl Scorer {
    /// For a choice whose text comes from a detokenizer like `detokenizer`.
    pub fn new(detokenizer: Detokenizer) -> Self {
        Self { detokenizer, chars: 0, pending: String::new() }
    }

    /// The next tokens of the choice, each with its entry of `logprobs`.
    pub fn push(&mut self, tokens: &[TokenId], logprobs: Box<[TokenLogprob]>) -> Vec<ScoredToken> {
        let scored = tokens.iter().zip(logprobs).map(|(&token, logprob)| ScoredToken {
            token,
            logprob,
            offset: self.advance(token),
        });
        scored.collect()
    }

    /// The first character at which `token` changes the text.
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
