//! Training of the filter's network: AdamW over all examples at once.

use model::FilterWeights;

use super::replay::Example;

/// AdamW: decay of the mean of the gradients, and of their squares.
const BETAS: (f32, f32) = (0.9, 0.999);
const EPSILON: f32 = 1e-8;
/// AdamW: weight decay, times the learning rate per step.
const DECAY: f32 = 0.01;
/// Number of validations in a training.
const CHECKS: u32 = 200;

/// Settings of a training.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Hidden units, `>= 1`.
    pub hidden: usize,
    /// Passes over all examples, `>= 1`.
    pub epochs: u32,
    /// AdamW's learning rate, `> 0`.
    pub learning_rate: f32,
    /// Seed of the initial weights.
    pub seed: u64,
}

/// Losses after an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Check {
    /// Number of passes done.
    pub epoch: u32,
    /// Mean loss per mask of the training examples, in nats, before the last pass.
    pub train: f64,
    /// Mean loss per mask of the validation examples, in nats.
    pub validation: f64,
}

/// Trains B -> H -> B on `train`: binary cross-entropy with logits, the mean over all masks.
/// Returns the weights with the lowest loss on `validation` and their check; `watch` gets every check.
/// Both sets must contain a mask; all examples have the same block length. The result depends on the
/// arguments alone.
pub fn fit(
    train: &[Example],
    validation: &[Example],
    settings: Settings,
    mut watch: impl FnMut(Check),
) -> (FilterWeights, Check) {
    let size = train.first().map_or(0, |example| example.right.len());
    let mut network = Network::random(size, settings.hidden, settings.seed);
    let mut adam = Adam::new(network.values.len(), settings.learning_rate);
    let mut gradient = vec![0.0; network.values.len()];
    let mut best = (network.clone(), None::<Check>);
    let every = (settings.epochs / CHECKS).max(1);
    for epoch in 1..=settings.epochs {
        gradient.fill(0.0);
        let loss = network.backward(train, &mut gradient);
        adam.step(&mut network.values, &gradient);
        if !epoch.is_multiple_of(every) && epoch != settings.epochs {
            continue;
        }
        let check = Check { epoch, train: loss, validation: network.loss(validation) };
        watch(check);
        if best.1.is_none_or(|best| check.validation < best.validation) {
            best = (network.clone(), Some(check));
        }
    }
    let none = Check { epoch: 0, train: f64::NAN, validation: f64::NAN };
    (best.0.into_weights(), best.1.unwrap_or(none))
}

/// All parameters in one vector: the first layer by input `[B, H]`, its biases `[H]`, the second
/// by output `[B, H]`, its biases `[B]`, so that every inner loop runs over H.
#[derive(Clone, Debug)]
struct Network {
    size: usize,
    hidden: usize,
    values: Vec<f32>,
}

/// The parts of a [`Network`] or of its gradient.
struct Parts<T> {
    first: T,
    first_bias: T,
    second: T,
    second_bias: T,
}

impl Network {
    /// Uniform in ±1/√inputs, weights and biases alike.
    fn random(size: usize, hidden: usize, seed: u64) -> Self {
        let mut state = seed;
        let mut uniform = |inputs: usize| {
            // SplitMix64; the upper 24 bits make an f32 in -1..1.
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut bits = state;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            bits ^= bits >> 31;
            ((bits >> 40) as f32 / (1u32 << 23) as f32 - 1.0) / (inputs as f32).sqrt()
        };
        let first = size * hidden + hidden;
        let mut values: Vec<f32> = (0..first).map(|_| uniform(size)).collect();
        values.extend((0..hidden * size + size).map(|_| uniform(hidden)));
        Self { size, hidden, values }
    }

    fn parts(&self) -> Parts<&[f32]> {
        let (first, rest) = self.values.split_at(self.size * self.hidden);
        let (first_bias, rest) = rest.split_at(self.hidden);
        let (second, second_bias) = rest.split_at(self.size * self.hidden);
        Parts { first, first_bias, second, second_bias }
    }

    fn parts_of<'a>(&self, gradient: &'a mut [f32]) -> Parts<&'a mut [f32]> {
        let (first, rest) = gradient.split_at_mut(self.size * self.hidden);
        let (first_bias, rest) = rest.split_at_mut(self.hidden);
        let (second, second_bias) = rest.split_at_mut(self.size * self.hidden);
        Parts { first, first_bias, second, second_bias }
    }

    /// The hidden units' values, ReLU applied.
    fn hidden(&self, confidences: &[f32], hidden: &mut [f32]) {
        let parts = self.parts();
        hidden.copy_from_slice(parts.first_bias);
        for (confidence, row) in confidences.iter().zip(parts.first.chunks(self.hidden)) {
            add(hidden, *confidence, row);
        }
        for value in hidden {
            *value = value.max(0.0);
        }
    }

    /// Mean loss of a mask.
    fn loss(&self, examples: &[Example]) -> f64 {
        let Parts { second, second_bias, .. } = self.parts();
        let mut hidden = vec![0.0; self.hidden];
        let (mut sum, mut masks) = (0.0, 0usize);
        for example in examples {
            self.hidden(&example.confidences, &mut hidden);
            let rows = second.chunks(self.hidden).zip(second_bias);
            for ((row, bias), right) in rows.zip(&example.right) {
                if let Some(right) = right {
                    sum += cross_entropy(dot(row, &hidden) + bias, *right);
                    masks += 1;
                }
            }
        }
        sum / masks.max(1) as f64
    }

    /// Adds the gradient of the mean loss of a mask to `gradient`; returns the loss.
    fn backward(&self, examples: &[Example], gradient: &mut [f32]) -> f64 {
        let parts = self.parts();
        let into = self.parts_of(gradient);
        let known = |example: &Example| example.right.iter().flatten().count();
        let masks = examples.iter().map(known).sum::<usize>().max(1);
        let mut sum = 0.0;
        let (mut hidden, mut back) = (vec![0.0; self.hidden], vec![0.0; self.hidden]);
        for example in examples {
            self.hidden(&example.confidences, &mut hidden);
            back.fill(0.0);
            for (index, right) in example.right.iter().enumerate() {
                let Some(right) = *right else {
                    continue;
                };
                let units = index * self.hidden..(index + 1) * self.hidden;
                let row = &parts.second[units.clone()];
                let logit = dot(row, &hidden) + parts.second_bias[index];
                sum += cross_entropy(logit, right);
                let slope = (sigmoid(logit) - f32::from(u8::from(right))) / masks as f32;
                add(&mut into.second[units], slope, &hidden);
                into.second_bias[index] += slope;
                add(&mut back, slope, row);
            }
            for (back, hidden) in back.iter_mut().zip(&hidden) {
                if *hidden <= 0.0 {
                    *back = 0.0;
                }
            }
            add(into.first_bias, 1.0, &back);
            let rows = into.first.chunks_mut(self.hidden);
            for (row, confidence) in rows.zip(&example.confidences) {
                add(row, *confidence, &back);
            }
        }
        sum / masks as f64
    }

    fn into_weights(self) -> FilterWeights {
        let parts = self.parts();
        let by_unit = |unit: usize| parts.first.chunks(self.hidden).map(move |row| row[unit]);
        FilterWeights {
            first: (0..self.hidden).flat_map(by_unit).collect(),
            first_bias: parts.first_bias.to_vec(),
            second: parts.second.to_vec(),
            second_bias: parts.second_bias.to_vec(),
        }
    }
}

struct Adam {
    rate: f32,
    passes: i32,
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Adam {
    fn new(values: usize, rate: f32) -> Self {
        Self { rate, passes: 0, mean: vec![0.0; values], square: vec![0.0; values] }
    }

    fn step(&mut self, values: &mut [f32], gradient: &[f32]) {
        self.passes += 1;
        let lag = (1.0 - BETAS.0.powi(self.passes), 1.0 - BETAS.1.powi(self.passes));
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((value, slope), (mean, square)) in values.iter_mut().zip(gradient).zip(moments) {
            *mean += (1.0 - BETAS.0) * (slope - *mean);
            *square += (1.0 - BETAS.1) * (slope * slope - *square);
            let step = (*mean / lag.0) / ((*square / lag.1).sqrt() + EPSILON);
            *value -= self.rate * (step + DECAY * *value);
        }
    }
}

/// -ln of the probability of the right class under the logit.
fn cross_entropy(logit: f32, right: bool) -> f64 {
    let against = f64::from(if right { -logit } else { logit });
    against.max(0.0) + (-against.abs()).exp().ln_1p()
}

/// The probability of a logit.
pub fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// target += factor * row
fn add(target: &mut [f32], factor: f32, row: &[f32]) {
    for (target, value) in target.iter_mut().zip(row) {
        *target += factor * value;
    }
}

/// Eight sums side by side, which the compiler keeps in one register.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests;
