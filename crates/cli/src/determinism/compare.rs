//! The comparison of answers.

use super::client::Answer;

/// The differences between answers to the same requests.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of answers that differ in a token or in a bit of a log-probability.
    pub differing: usize,
    /// The largest difference of a log-probability of the same token after the same tokens.
    pub largest: f64,
    /// The first one.
    pub first: Option<Difference>,
}

/// The place of a difference.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// The request, from 1.
    pub request: usize,
    /// The token, from 1.
    pub token: usize,
    /// The token and its log-probability in the first answer, or what stands for them.
    pub left: String,
    /// As `left`, in the other answer.
    pub right: String,
}

impl Tally {
    /// Compares answers pair by pair.
    pub fn of(before: &[Answer], after: &[Answer]) -> Self {
        let mut tally = Self::default();
        for (number, (before, after)) in before.iter().zip(after).enumerate() {
            if let Some((token, left, right)) = tally.compare(before, after) {
                tally.differing += 1;
                let difference =
                    || Difference { request: number + 1, token: token + 1, left, right };
                tally.first.get_or_insert_with(difference);
            }
        }
        tally
    }

    /// The first difference of two answers: the number of the token and both tokens.
    fn compare(&mut self, before: &Answer, after: &Answer) -> Option<(usize, String, String)> {
        let mut found = None;
        for index in 0..before.tokens.len().max(after.tokens.len()) {
            let (left, right) = (before.token(index), after.token(index));
            let (one, other) = (before.logprob(index), after.logprob(index));
            let is_same_token = left == right;
            if let (true, Some(one), Some(other)) = (is_same_token, one, other) {
                self.largest = self.largest.max((one - other).abs());
            }
            if !is_same_token || one.map(f64::to_bits) != other.map(f64::to_bits) {
                let shown = |token: Option<&str>, logprob: Option<f64>| match (token, logprob) {
                    (None, _) => "the end".to_owned(),
                    (Some(token), None) => format!("{token:?}"),
                    (Some(token), Some(logprob)) => format!("{token:?} ({logprob})"),
                };
                found.get_or_insert((index, shown(left, one), shown(right, other)));
            }
            if !is_same_token {
                break;
            }
        }
        if found.is_none() && before.text != after.text {
            return Some((0, format!("{:?}", before.text), format!("{:?}", after.text)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(tokens: &[(&str, f64)]) -> Answer {
        Answer {
            text: tokens.iter().map(|(token, _)| *token).collect(),
            tokens: tokens.iter().map(|(token, _)| (*token).to_owned()).collect(),
            logprobs: tokens.iter().map(|(_, logprob)| Some(*logprob)).collect(),
            fingerprint: None,
        }
    }

    #[test]
    fn tokens_and_the_last_bit_of_a_logprob_count() {
        let one = answer(&[("a", -0.5), ("b", -1.0)]);
        let same = Tally::of(std::slice::from_ref(&one), std::slice::from_ref(&one));
        assert_eq!((same.differing, same.largest, same.first), (0, 0.0, None));
        let next = f64::from_bits((-1.0_f64).to_bits() + 1);
        let near = answer(&[("a", -0.5), ("b", next)]);
        let tally =
            Tally::of(&[one, near], &[answer(&[("a", -0.5), ("b", next)]), answer(&[("a", -0.5)])]);
        assert_eq!(tally.differing, 2);
        assert!(tally.largest > 0.0 && tally.largest < 1e-15, "{tally:?}");
        let first = tally.first.unwrap();
        assert_eq!((first.request, first.token), (1, 2));
        assert_eq!(first.left, "\"b\" (-1)");
        let other = Tally::of(&[answer(&[("a", -0.5)])], &[answer(&[("c", -9.0)])]);
        assert_eq!((other.differing, other.largest), (1, 0.0), "another token has another number");
    }

    #[test]
    fn texts_count_where_a_server_lists_no_tokens() {
        let text = |text: &str| Answer { text: text.to_owned(), ..Answer::default() };
        assert_eq!(Tally::of(&[text("a")], &[text("a")]).differing, 0);
        assert_eq!(Tally::of(&[text("a")], &[text("b")]).differing, 1);
    }
}
