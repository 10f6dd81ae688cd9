//! Where the last tokens of a text occur in it before.

use decode::TokenId;

/// Most tokens that are compared.
const LONGEST: usize = 8;
/// Last tokens of a text among which a match is looked for. It bounds the time of a step.
const SEARCHED: usize = 1 << 16;

/// The end of the earlier run of tokens that equals the last ones of a text of `length` tokens: of all
/// runs of `shortest` tokens or more that end before `until`, the one of the longest that ends nearest to
/// `near`. `None` if there is none. Runs have at most 8 tokens and are looked for in the last 65,536 tokens.
pub(super) fn end_of_match(
    token: &impl Fn(usize) -> Option<TokenId>,
    length: usize,
    until: usize,
    near: usize,
    shortest: usize,
) -> Option<usize> {
    let matched = |end: usize| {
        let back = 1..=LONGEST.min(end);
        back.take_while(|back| token(end - back) == token(length - back)).count()
    };
    let (mut best, mut found) = (shortest.saturating_sub(1), None);
    for end in (until.saturating_sub(SEARCHED)..until).rev() {
        let tokens = matched(end);
        let is_nearer = found.is_some_and(|found: usize| end.abs_diff(near) < found.abs_diff(near));
        if tokens > best || tokens == best && is_nearer {
            (best, found) = (tokens, Some(end));
        }
        if best == LONGEST && end <= near {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &[TokenId], shortest: usize) -> Option<usize> {
        let (token, length) = (|index: usize| text.get(index).copied(), text.len());
        end_of_match(&token, length, length, length, shortest)
    }

    #[test]
    fn the_latest_of_the_longest_matches_counts() {
        assert_eq!(end(&[1, 2, 3, 4, 1, 2], 2), Some(2));
        assert_eq!(end(&[1, 2, 3, 1, 2, 4, 1, 2], 2), Some(5));
        assert_eq!(end(&[5, 1, 2, 3, 9, 1, 2, 4, 5, 1, 2], 2), Some(3));
        let text = [1, 2, 3, 1, 2, 4, 1, 2];
        assert_eq!(end_of_match(&|index| text.get(index).copied(), 8, 5, 5, 2), Some(2));
        let near = |near| end_of_match(&|index| text.get(index).copied(), 8, 8, near, 2);
        assert_eq!([near(8), near(4), near(3), near(0)], [Some(5), Some(5), Some(2), Some(2)]);
        assert_eq!(end(&[7, 7, 7, 7], 2), Some(3));
        assert_eq!(end(&[1, 2, 3, 4, 9, 2], 2), None);
        assert_eq!(end(&[1, 2, 3, 4, 9, 2], 1), Some(2));
    }

    #[test]
    fn short_texts_have_no_match() {
        assert_eq!(end(&[], 1), None);
        assert_eq!(end(&[3], 1), None);
        assert_eq!(end(&[3, 3], 2), None);
        assert_eq!(end(&[3, 3], 1), Some(1));
    }

    #[test]
    fn no_more_than_the_stated_number_of_tokens_is_searched() {
        let mut text = vec![1, 2, 3];
        text.extend(std::iter::repeat_n(9, SEARCHED));
        text.extend([1, 2]);
        assert_eq!(end(&text, 2), None);
    }
}
