//! Training: the gradient against differences, a rule that can be learnt, the same bits again.

use super::*;

/// Blocks of three in which a mask is right if its confidence is above 0.5 and the one before it
/// is not a mask.
fn examples(count: usize, seed: u64) -> Vec<Example> {
    let mut noise = Network::random(count, 3, seed).values.into_iter();
    let mut next = || noise.next().expect("enough values") * (count as f32).sqrt();
    let example = |_| {
        let confidences: Vec<f32> = (0..3).map(|_| (next() + 1.0) / 2.0).collect();
        let right = vec![
            Some(confidences[0] > 0.5),
            (confidences[0] > 0.5).then_some(confidences[1] > 0.5),
            None,
        ];
        Example { confidences, right }
    };
    (0..count).map(example).collect()
}

const SETTINGS: Settings = Settings { hidden: 4, epochs: 400, learning_rate: 0.03, seed: 7 };

#[test]
fn the_gradient_is_that_of_the_loss() {
    let examples = examples(20, 3);
    let network = Network::random(3, 5, 1);
    let mut gradient = vec![0.0; network.values.len()];
    let loss = network.backward(&examples, &mut gradient);
    assert!((loss - network.loss(&examples)).abs() < 1e-9);
    let nudge = 1e-3;
    let mut large = 0;
    for (index, slope) in gradient.iter().enumerate() {
        let moved_loss = |by: f32| {
            let mut moved = network.clone();
            moved.values[index] += by;
            moved.loss(&examples)
        };
        let expected = (moved_loss(nudge) - moved_loss(-nudge)) / f64::from(2.0 * nudge);
        let found = f64::from(*slope);
        assert!((found - expected).abs() < 1e-3, "{index}: {found} {expected}");
        large += usize::from(expected.abs() > 1e-2);
    }
    assert!(large > 10, "{large} slopes that say something");
}

#[test]
fn a_rule_is_learnt_and_the_best_weights_are_kept() {
    let (train, validation) = (examples(200, 1), examples(50, 2));
    let mut checks = Vec::new();
    let (weights, best) = fit(&train, &validation, SETTINGS, |check| checks.push(check));
    assert_eq!(checks.len(), 200);
    assert!(checks[0].validation > 0.6 && best.validation < 0.2, "{best:?}");
    let lowest = checks.iter().map(|check| check.validation).reduce(f64::min);
    assert_eq!(lowest, Some(best.validation));
    // The weights returned are those that were validated, in the layout that decoding reads.
    let filter = cli::load::network(weights).expect("3 -> 4 -> 3");
    let mut logits = Vec::new();
    let (mut sum, mut masks) = (0.0, 0);
    for example in &validation {
        filter.logits(&example.confidences, &mut logits);
        for (logit, right) in logits.iter().zip(&example.right) {
            if let Some(right) = right {
                sum += cross_entropy(*logit, *right);
                masks += 1;
            }
        }
    }
    assert!((sum / f64::from(masks) - best.validation).abs() < 1e-5);
}

#[test]
fn the_same_arguments_give_the_same_weights() {
    let (train, validation) = (examples(40, 1), examples(10, 2));
    let settings = Settings { epochs: 30, ..SETTINGS };
    let first = fit(&train, &validation, settings, |_| ()).0;
    assert_eq!(fit(&train, &validation, settings, |_| ()).0, first);
    let other = Settings { seed: 8, ..settings };
    assert_ne!(fit(&train, &validation, other, |_| ()).0, first);
}
