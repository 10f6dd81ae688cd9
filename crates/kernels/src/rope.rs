//! Rotary position embedding with a position per row.

use crate::parallel::{self, Shared};
use crate::simd::{Kernel, Simd, dispatch};
use crate::storage::numbers_mut;
use candle_core::{CpuStorage, InplaceOp1, Layout, Result, bail};
use std::ops::Range;

/// Rotary angles `position * frequency`, with the frequencies `theta^(-2 i / width)` or what
/// `scaling` and `divisors` make of them.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// The base.
    pub theta: f64,
    /// Rotated elements of a head, even.
    pub width: usize,
    /// Number of positions.
    pub positions: usize,
    /// The change of the frequencies for long contexts, if any.
    pub scaling: Option<RopeScaling>,
    /// Factor of cosines and sines; 1 without scaling.
    pub magnitude: f32,
    /// Number of leading frequencies that are not 0: the elements of the others keep their values
    /// (`rope_type` `proportional`). `width / 2` if all turn.
    pub turning: usize,
    /// Divisors of the frequencies after `scaling`, in their order, finite and above 0
    /// (llama.cpp's `freq_factors`); empty for 1.
    pub divisors: Vec<f32>,
    /// The growth of queries at far positions, if any.
    pub growth: Option<QueryGrowth>,
}

/// Queries are multiplied by `1 + beta ln(1 + floor(position / original))` after the rotation, as in
/// Llama 4 and Ministral 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryGrowth {
    /// The growth with the logarithm, at least 0.
    pub beta: f64,
    /// Positions of the first training, at least 1: the factor of all of them is 1.
    pub original: usize,
}

impl QueryGrowth {
    /// The factor of the queries at a position.
    fn factor(&self, position: usize) -> f32 {
        let times = (position / self.original) as f64;
        (1.0 + self.beta * times.ln_1p()) as f32
    }
}

impl RopeSpec {
    /// Angles of complete heads of `width` elements, without any change.
    pub fn plain(theta: f64, width: usize, positions: usize) -> Self {
        Self {
            theta,
            width,
            positions,
            scaling: None,
            magnitude: 1.0,
            turning: width / 2,
            divisors: Vec::new(),
            growth: None,
        }
    }

    /// The factor of the queries at each position; empty if all are 1.
    pub(crate) fn query_factors(&self) -> Vec<f32> {
        match &self.growth {
            Some(growth) if growth.original < self.positions => {
                (0..self.positions).map(|position| growth.factor(position)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The `width / 2` frequencies, computed in f32 like the reference code.
    pub fn frequencies(&self) -> Vec<f32> {
        let yarn = match &self.scaling {
            Some(RopeScaling::Yarn(yarn)) => yarn.mixed(self.theta, self.width),
            _ => [0.0; 2],
        };
        let frequency = |i: usize| {
            let exponent = (2 * i) as f32 / self.width as f32;
            let period = (self.theta as f32).powf(exponent);
            match &self.scaling {
                _ if i >= self.turning => 0.0,
                None => 1.0 / period,
                Some(RopeScaling::Linear { factor }) => 1.0 / period / factor,
                Some(RopeScaling::Llama3(scaling)) => scaling.scaled(1.0 / period),
                Some(RopeScaling::Yarn(scaling)) => scaling.scaled(i, period, yarn),
                Some(RopeScaling::Long { divisors }) => {
                    1.0 / (divisors.get(i).copied().unwrap_or(1.0) * period)
                }
            }
        };
        let mut all: Vec<f32> = (0..self.width / 2).map(frequency).collect();
        for (frequency, divisor) in all.iter_mut().zip(&self.divisors) {
            *frequency /= divisor;
        }
        all
    }
}

/// A change of the frequencies for contexts longer than those of the first training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// All frequencies are divided (`rope_type` `linear`).
    Linear {
        /// The divisor, at least 1.
        factor: f32,
    },
    /// Llama 3.1's change (`llama3`).
    Llama3(Llama3Scaling),
    /// YaRN's change (`yarn`, arXiv 2309.00071).
    Yarn(YarnScaling),
    /// Each frequency is divided by its own number (`longrope`, arXiv 2402.13753).
    Long {
        /// As many divisors as frequencies, above 0.
        divisors: Vec<f32>,
    },
}

/// Slow frequencies are divided by `factor`, fast ones stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// Divisor of slow frequencies, at least 1.
    pub factor: f32,
    /// Rotations within the original context up to which a frequency is slow.
    pub low: f32,
    /// Rotations within the original context from which a frequency is fast; more than `low`.
    pub high: f32,
    /// Positions of the first training.
    pub original: usize,
}

impl Llama3Scaling {
    /// The frequency in place of `frequency`; between slow and fast the two are mixed.
    fn scaled(&self, frequency: f32) -> f32 {
        let rotations = self.original as f32 / (std::f32::consts::TAU / frequency);
        let fast = ((rotations - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        (1.0 - fast) * frequency / self.factor + fast * frequency
    }
}

/// Slow frequencies are divided by `factor`, fast ones stay; between two numbers of frequencies the two
/// are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// Divisor of slow frequencies, at least 1.
    pub factor: f64,
    /// Rotations within the original context from which a frequency is fast.
    pub fast: f64,
    /// Rotations within the original context up to which a frequency is slow; fewer than `fast`.
    pub slow: f64,
    /// Positions of the first training.
    pub original: usize,
    /// True if the two numbers of frequencies are rounded outwards.
    pub truncate: bool,
}

impl YarnScaling {
    /// The numbers of the last fast and of the first slow frequency, for a base above 1.
    fn mixed(&self, theta: f64, width: usize) -> [f32; 2] {
        let number = |rotations: f64| {
            let period = self.original as f64 / (rotations * std::f64::consts::TAU);
            width as f64 * period.ln() / (2.0 * theta.ln())
        };
        let (mut fast, mut slow) = (number(self.fast), number(self.slow));
        if self.truncate {
            (fast, slow) = (fast.floor(), slow.ceil());
        }
        let (fast, slow) = (fast.max(0.0), slow.min(width as f64 - 1.0));
        // As in the reference code, so that nothing is divided by 0.
        let slow = if fast == slow { slow + 0.001 } else { slow };
        [fast as f32, (slow - fast) as f32]
    }

    /// The frequency `i`, whose period is `period`.
    fn scaled(&self, i: usize, period: f32, [first, length]: [f32; 2]) -> f32 {
        let slow = ((i as f32 - first) / length).clamp(0.0, 1.0);
        let fast = 1.0 - slow;
        1.0 / (self.factor as f32 * period) * (1.0 - fast) + 1.0 / period * fast
    }
}

/// Cosines and sines of every position.
pub struct RopeTable {
    /// `[positions, 2, half]`: cosines, then sines of each position.
    table: Vec<f32>,
    half: usize,
    /// `[positions]`: factors of queries; empty if all are 1.
    query_factors: Vec<f32>,
}

impl RopeTable {
    /// The table of some angles, as wide as the rotated part of a head.
    pub fn new(spec: &RopeSpec) -> Self {
        let half = spec.width / 2;
        let mut table = Vec::with_capacity(spec.positions * spec.width);
        let frequencies = spec.frequencies();
        for position in 0..spec.positions {
            let angles = frequencies.iter().map(|f| f64::from(position as f32 * f));
            let factor = spec.magnitude;
            table.extend(angles.clone().map(|angle| angle.cos() as f32 * factor));
            table.extend(angles.map(|angle| angle.sin() as f32 * factor));
        }
        Self { table, half, query_factors: spec.query_factors() }
    }

    /// The table `[positions, 2, half]`.
    pub(crate) fn numbers(&self) -> &[f32] {
        &self.table
    }

    /// The factors of queries `[positions]`; empty if all are 1.
    pub(crate) fn query_factors(&self) -> &[f32] {
        &self.query_factors
    }

    /// Half the width of a head's rotated part.
    pub(crate) fn half(&self) -> usize {
        self.half
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.table.len().checked_div(2 * self.half).unwrap_or(usize::MAX)
    }
}

/// Rotates the first `heads` heads of every row of a tensor `[r, >= heads * c]` in place:
/// `(a, b) -> (a cos - b sin, b cos + a sin)` for the two halves `a`, `b` of a head's rotated part,
/// which is its first elements up to the table's width. Then multiplies the query heads.
pub struct Rope<'a> {
    /// Cosines and sines.
    pub table: &'a RopeTable,
    /// Position of each row, `[r]`.
    pub positions: &'a [u32],
    /// Number of heads to rotate: the query heads, followed by the key heads.
    pub heads: usize,
    /// Number of query heads among them.
    pub queries: usize,
    /// Head width `c`, at least the table's width.
    pub width: usize,
}

impl InplaceOp1 for Rope<'_> {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (rows, width) = layout.shape().dims2()?;
        let data = numbers_mut(self.name(), storage, layout)?;
        let rotated = self.heads * self.width;
        if self.positions.len() != rows
            || self.queries > self.heads
            || rotated > width
            || self.width < 2 * self.table.half
        {
            bail!(
                "rope: {} positions, {} heads of {} for [{rows}, {width}]",
                self.positions.len(),
                self.heads,
                { self.width }
            );
        }
        let positions = self.table.positions();
        if let Some(position) = self.positions.iter().find(|&&p| p as usize >= positions) {
            bail!("rope: position {position} of {positions}");
        }
        let shared = Shared::new(data);
        parallel::for_rows(rows, rows * rotated, |Range { start, end }| {
            // SAFETY: tasks own disjoint rows.
            let data = unsafe { shared.slice(start * width, (end - start) * width) };
            dispatch(Rotate { rope: self, positions: &self.positions[start..end], data });
        });
        Ok(())
    }
}

/// One task: some rows.
struct Rotate<'a> {
    rope: &'a Rope<'a>,
    positions: &'a [u32],
    data: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (half, heads, c) = (self.rope.table.half, self.rope.heads, self.rope.width);
        let width = self.data.len() / self.positions.len();
        for (row, &position) in self.data.chunks_exact_mut(width).zip(self.positions) {
            let angles = &self.rope.table.table[position as usize * 2 * half..][..2 * half];
            let (cos, sin) = angles.split_at(half);
            for head in row[..heads * c].chunks_exact_mut(c) {
                let (low, high) = head[..2 * half].split_at_mut(half);
                for i in 0..half {
                    let (a, b) = (low[i], high[i]);
                    low[i] = a * cos[i] - b * sin[i];
                    high[i] = b * cos[i] + a * sin[i];
                }
            }
            if let Some(factor) = self.rope.table.query_factors.get(position as usize) {
                row[..self.rope.queries * c].iter_mut().for_each(|x| *x *= factor);
            }
        }
    }
}
