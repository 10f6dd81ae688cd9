//! Labels of options: single tokens at the place of an answer.

use step::TokenId;
use text::{TextError, Tokenizer};

/// Most labels: as many tokens as a row lists.
pub const MAX_LABELS: usize = 255;
/// Characters of a code of the vocabulary.
const CODE_CHARS: std::ops::RangeInclusive<usize> = 2..=3;

/// The labels of a tokenizer, in the order in which options take them: letters, digits, then short
/// codes of the vocabulary.
#[derive(Clone, Debug)]
pub struct Labels {
    texts: Vec<String>,
    tokens: Vec<TokenId>,
    /// The text between number and label.
    gap: &'static str,
}

/// The line of an answer, around its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of the question and a colon.
    pub before: Vec<TokenId>,
    /// The end of the line.
    pub after: Vec<TokenId>,
}

impl Labels {
    /// The labels of `tokenizer`. A label follows a space if every capital letter is one token there.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, TextError> {
        let spaced = Self::with_gap(tokenizer, " ")?;
        let letters = spaced.texts.iter().filter(|text| text.as_bytes()[0].is_ascii_uppercase());
        match letters.filter(|text| text.len() == 1).count() {
            26 => Ok(spaced),
            _ => Self::with_gap(tokenizer, ""),
        }
    }

    fn with_gap(tokenizer: &Tokenizer, gap: &'static str) -> Result<Self, TextError> {
        let mut labels = Self { texts: Vec::new(), tokens: Vec::new(), gap };
        let letters = ('A'..='Z').chain('a'..='z').chain('0'..='9').map(String::from);
        let Some(line) = labels.line_around(tokenizer, 1, ["A", "B"])? else {
            return Ok(labels);
        };
        for text in letters.chain(codes(tokenizer, gap)) {
            if labels.texts.len() == MAX_LABELS {
                break;
            }
            let ids = labels.encode(tokenizer, 1, &text)?;
            let found = line.label(&ids).filter(|token| {
                !labels.tokens.contains(token)
                    && !tokenizer.is_special(*token)
                    && tokenizer.mask_id() != Some(*token)
            });
            if let Some(token) = found {
                labels.tokens.push(token);
                labels.texts.push(text);
            }
        }
        Ok(labels)
    }

    /// The texts.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The tokens, one per text.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The line of the question with this number, from 1; none if its labels are not the usual tokens.
    ///
    /// # Errors
    /// A text that cannot be encoded.
    pub fn line(&self, tokenizer: &Tokenizer, number: usize) -> Result<Option<Line>, TextError> {
        let [first, second, ..] = self.texts.as_slice() else {
            return Ok(None);
        };
        let line = self.line_around(tokenizer, number, [first, second])?;
        let Some(line) = line else {
            return Ok(None);
        };
        let ids = self.encode(tokenizer, number, first)?;
        Ok((line.label(&ids) == Some(self.tokens[0])).then_some(line))
    }

    /// The line around two labels that are one token each.
    fn line_around(
        &self,
        tokenizer: &Tokenizer,
        number: usize,
        labels: [&str; 2],
    ) -> Result<Option<Line>, TextError> {
        let [one, other] = labels.map(|label| self.encode(tokenizer, number, label));
        let (one, other) = (one?, other?);
        let differs = |(a, b): (&TokenId, &TokenId)| a != b;
        let Some(index) = one.iter().zip(&other).position(differs) else {
            return Ok(None);
        };
        let line = Line { before: one[..index].to_vec(), after: one[index + 1..].to_vec() };
        Ok(line.label(&other).map(|_| line))
    }

    fn encode(
        &self,
        tokenizer: &Tokenizer,
        number: usize,
        label: &str,
    ) -> Result<Vec<TokenId>, TextError> {
        tokenizer.encode(&format!("{number}:{}{label}\n", self.gap), false)
    }
}

impl Line {
    /// The only token between the parts of the line in `ids`.
    fn label(&self, ids: &[TokenId]) -> Option<TokenId> {
        let label = ids.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        <[TokenId; 1]>::try_from(label).ok().map(|[token]| token)
    }
}

/// The tokens of two or three letters and digits, capitals first, then shorter ones.
fn codes(tokenizer: &Tokenizer, gap: &str) -> Vec<String> {
    let count = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let code = |id: TokenId| {
        let text = tokenizer.token_text(id);
        let code = text.strip_prefix(gap)?;
        let is_code = CODE_CHARS.contains(&code.len())
            && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_code.then(|| code.to_owned())
    };
    let mut codes: Vec<String> = (0..count).filter_map(code).collect();
    let key = |code: &String| {
        let is_plain = !code.bytes().all(|byte| byte.is_ascii_uppercase());
        (is_plain, code.len(), code.clone())
    };
    codes.sort_by_cached_key(key);
    codes
}
