//! Rotary position embedding with a position per row.

use crate::parallel::{self, Shared};
use crate::simd::{Kernel, Simd, dispatch};
use crate::storage::f32s_mut;
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
    /// The change of the frequencies, if any.
    pub scaling: Option<RopeScaling>,
    /// Number of leading frequencies that are not 0: the elements of the others keep their values
    /// (`rope_type` `proportional`). `width / 2` if all turn.
    pub turning: usize,
    /// Divisors of the frequencies after `scaling`, in their order, finite and above 0
    /// (llama.cpp's `freq_factors`); empty for 1.
    pub divisors: Vec<f32>,
}

impl RopeSpec {
    /// The `width / 2` frequencies, computed in f32 like the reference code.
    pub fn frequencies(&self) -> Vec<f32> {
        let frequency = |i: usize| {
            let exponent = (2 * i) as f32 / self.width as f32;
            1.0 / (self.theta as f32).powf(exponent)
        };
        let turns = |i: usize| if i < self.turning { frequency(i) } else { 0.0 };
        let scaled = |frequency| match self.scaling {
            None => frequency,
            Some(scaling) => scaling.scaled(frequency),
        };
        let mut all: Vec<f32> = (0..self.width / 2).map(turns).map(scaled).collect();
        for (frequency, divisor) in all.iter_mut().zip(&self.divisors) {
            *frequency /= divisor;
        }
        all
    }
}

/// Llama 3.1's change of the frequencies for contexts longer than those of the first training
/// (`rope_type` `llama3`): slow ones are divided by `factor`, fast ones stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeScaling {
    /// Divisor of slow frequencies, at least 1.
    pub factor: f32,
    /// Rotations within the original context up to which a frequency is slow.
    pub low: f32,
    /// Rotations within the original context from which a frequency is fast; more than `low`.
    pub high: f32,
    /// Positions of the first training.
    pub original: usize,
}

impl RopeScaling {
    /// The frequency in place of `frequency`; between slow and fast the two are mixed.
    fn scaled(&self, frequency: f32) -> f32 {
        let rotations = self.original as f32 * frequency / std::f32::consts::TAU;
        let fast = ((rotations - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        (1.0 - fast) * frequency / self.factor + fast * frequency
    }
}

/// Cosines and sines of every position.
pub struct RopeTable {
    /// `[positions, 2, half]`: cosines, then sines of each position.
    table: Vec<f32>,
    half: usize,
}

impl RopeTable {
    /// The table of some angles, as wide as the rotated part of a head.
    pub fn new(angles: &RopeSpec) -> Self {
        let half = angles.width / 2;
        let mut table = Vec::with_capacity(angles.positions * angles.width);
        let frequencies = angles.frequencies();
        for position in 0..angles.positions {
            let angles = frequencies.iter().map(|f| f64::from(position as f32 * f));
            table.extend(angles.clone().map(|angle| angle.cos() as f32));
            table.extend(angles.map(|angle| angle.sin() as f32));
        }
        Self { table, half }
    }

    /// The table `[positions, 2, half]`.
    pub(crate) fn numbers(&self) -> &[f32] {
        &self.table
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
/// which is its first elements up to the table's width.
pub struct Rope<'a> {
    /// Cosines and sines.
    pub table: &'a RopeTable,
    /// Position of each row, `[r]`.
    pub positions: &'a [u32],
    /// Number of heads to rotate: the query heads, followed by the key heads.
    pub heads: usize,
    /// Head width `c`, at least the table's width.
    pub width: usize,
}

impl InplaceOp1 for Rope<'_> {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (rows, width) = layout.shape().dims2()?;
        let data = f32s_mut(self.name(), storage, layout)?;
        let rotated = self.heads * self.width;
        if self.positions.len() != rows || rotated > width || self.width < 2 * self.table.half {
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
        parallel::for_rows(rows, rows * rotated, |Range { start: from, end: to }| {
            // SAFETY: tasks own disjoint rows.
            let data = unsafe { shared.part(from * width, (to - from) * width) };
            dispatch(Rotate { rope: self, positions: &self.positions[from..to], data });
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
        }
    }
}
