//! Precision and recall of a filter on test examples, compared with a threshold on confidence.

use decode::Filter;

use super::fit::sigmoid;
use super::replay::Example;

/// Counts of accepted masks and of masks to accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Masks accepted.
    pub accepted: usize,
    /// Masks whose most probable token is right.
    pub right: usize,
    /// Accepted masks whose most probable token is right.
    pub both: usize,
}

impl Score {
    /// Share of the accepted masks that are right, in percent; 100 if none is accepted.
    pub fn precision(&self) -> f64 {
        percent(self.both, self.accepted)
    }

    /// Share of the right masks that are accepted, in percent; 100 if none is right.
    pub fn recall(&self) -> f64 {
        percent(self.both, self.right)
    }

    fn count(examples: &[Example], accepts: impl Fn(&Example) -> Vec<bool>) -> Self {
        let mut score = Self::default();
        for example in examples {
            let pairs = example.right.iter().zip(accepts(example));
            for (right, accepted) in pairs.filter_map(|(right, yes)| Some(((*right)?, yes))) {
                score.accepted += usize::from(accepted);
                score.right += usize::from(right);
                score.both += usize::from(accepted && right);
            }
        }
        score
    }
}

/// Counts for masks that `filter` accepts with more than `threshold`.
pub fn of_filter(examples: &[Example], filter: &Filter, threshold: f32) -> Score {
    Score::count(examples, |example| {
        let mut logits = Vec::new();
        filter.logits(&example.confidences, &mut logits);
        logits.iter().map(|u| sigmoid(*u) > threshold).collect()
    })
}

/// Counts for masks with a confidence of at least `threshold`.
pub fn of_confidence(examples: &[Example], threshold: f32) -> Score {
    Score::count(examples, |example| example.confidences.iter().map(|c| *c >= threshold).collect())
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 100.0;
    }
    100.0 * part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_is_of_the_accepted_and_recall_of_the_right() {
        let example = Example {
            confidences: vec![0.95, 0.9, 0.5, 0.5, 0.99],
            right: vec![Some(true), Some(false), Some(true), Some(false), None],
        };
        let score = of_confidence(&[example.clone(), example], 0.9);
        assert_eq!((score.accepted, score.right, score.both), (4, 4, 2));
        assert_eq!((score.precision(), score.recall()), (50.0, 50.0));
        let none = of_confidence(&[], 0.9);
        assert_eq!((none.precision(), none.recall()), (100.0, 100.0));
    }

    #[test]
    fn a_filter_accepts_what_its_logits_say() {
        let filter = Filter::new(decode::Weights {
            first: vec![1.0, 0.0],
            first_bias: vec![0.0],
            second: vec![8.0, 8.0],
            second_bias: vec![-4.0, 0.0],
        });
        let example = Example { confidences: vec![0.5, 0.1], right: vec![Some(false), Some(true)] };
        // Logits 0 and 4: 0.5 and 0.982.
        let filter = filter.expect("2 -> 1 -> 2");
        let score = |threshold| of_filter(std::slice::from_ref(&example), &filter, threshold);
        assert_eq!(score(0.96), Score { accepted: 1, right: 1, both: 1 });
        assert_eq!(score(0.4), Score { accepted: 2, right: 1, both: 1 });
        assert_eq!(score(0.99), Score { accepted: 0, right: 1, both: 0 });
    }
}
