//! The tokens that a row may propose: the whole vocabulary or a set.

use std::ops::Range;

use step::{TokenId, as_index, set_words};

/// A set of tokens of `0..vocab_size`.
#[derive(Debug)]
pub(crate) struct Allowed<'a> {
    vocab_size: u32,
    /// [`set_words`] words with one bit per token; `None` for all tokens.
    words: Option<&'a [u32]>,
}

impl<'a> Allowed<'a> {
    /// All tokens.
    pub(crate) fn all(vocab_size: u32) -> Self {
        let words = None;
        Self { vocab_size, words }
    }

    /// The tokens of a set of the batch; bits beyond the vocabulary are ignored.
    pub(crate) fn set(vocab_size: u32, words: &'a [u32]) -> Self {
        let words = Some(&words[..set_words(vocab_size)]);
        Self { vocab_size, words }
    }

    pub(crate) fn contains(&self, token: TokenId) -> bool {
        self.word(token / 32) >> (token % 32) & 1 == 1
    }

    /// Number of allowed tokens in a range of ids; the range may reach beyond the vocabulary.
    pub(crate) fn count(&self, range: Range<TokenId>) -> u32 {
        let end = range.end.min(self.vocab_size);
        if range.start >= end {
            return 0;
        }
        if self.words.is_none() {
            return end - range.start;
        }
        let (first, last) = (range.start / 32, (end - 1) / 32);
        let head = u32::MAX << (range.start % 32);
        let tail = u32::MAX >> (31 - (end - 1) % 32);
        let words = (first..=last).map(|index| {
            let above = if index == first { head } else { u32::MAX };
            let below = if index == last { tail } else { u32::MAX };
            self.word(index) & above & below
        });
        words.map(u32::count_ones).sum()
    }

    /// The allowed tokens from `first` on, by id.
    pub(crate) fn iter_from(&self, first: TokenId) -> impl Iterator<Item = TokenId> + '_ {
        let mut index = first / 32;
        let mut left = self.word(index) & (u32::MAX << (first % 32));
        let words = self.vocab_size.div_ceil(32);
        std::iter::from_fn(move || {
            while left == 0 {
                index += 1;
                if index >= words {
                    return None;
                }
                left = self.word(index);
            }
            let bit = left.trailing_zeros();
            left &= left - 1;
            Some(index * 32 + bit)
        })
    }

    /// The allowed token with `number` other allowed ones between `first` and itself.
    pub(crate) fn nth(&self, first: TokenId, number: u32) -> Option<TokenId> {
        match self.words {
            None => Some(first + number).filter(|&token| token < self.vocab_size),
            Some(_) => self.iter_from(first).nth(as_index(number)),
        }
    }

    /// The bits of the tokens from `32 * index` on.
    fn word(&self, index: u32) -> u32 {
        let first = index.saturating_mul(32);
        let inside = match self.vocab_size.saturating_sub(first) {
            0 => 0,
            count @ 1..32 => (1 << count) - 1,
            _ => u32::MAX,
        };
        inside
            & self.words.map_or(u32::MAX, |words| words.get(as_index(index)).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use step::{as_count, as_index};

    use super::Allowed;

    #[test]
    fn counts_and_lists_equal_plain_loops() {
        for vocab_size in [4u32, 31, 32, 33, 96, 100] {
            let words = [0x8000_0001, 0, u32::MAX, 0x1234_5678];
            let set = Allowed::set(vocab_size, &words);
            for allowed in [Allowed::all(vocab_size), set] {
                let inside = |token: u32| {
                    token < vocab_size
                        && allowed.words.is_none_or(|words| {
                            words[as_index(token / 32)] >> (token % 32) & 1 == 1
                        })
                };
                for start in 0..vocab_size + 2 {
                    assert_eq!(allowed.contains(start), inside(start));
                    let listed: Vec<_> = allowed.iter_from(start).collect();
                    let expected: Vec<_> = (start..vocab_size).filter(|&t| inside(t)).collect();
                    assert_eq!(listed, expected);
                    for number in 0..expected.len() + 1 {
                        let nth = allowed.nth(start, as_count(number));
                        assert_eq!(nth, expected.get(number).copied());
                    }
                    for end in 0..vocab_size + 40 {
                        let expected = (start..end).filter(|&token| inside(token)).count();
                        assert_eq!(allowed.count(start..end), as_count(expected), "{start}..{end}");
                    }
                }
            }
        }
    }
}
