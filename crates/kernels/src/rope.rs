//! Rotary position embedding, each row at its own position.

use crate::parallel::{self, Shared};
use crate::simd::{Kernel, Simd, dispatch};
use crate::storage::f32s_mut;
use candle_core::{CpuStorage, InplaceOp1, Layout, Result, bail};
use std::ops::Range;

/// Cosines and sines of every position.
pub struct RopeTable {
    /// `[positions, 2, half]`: a position's cosines, then its sines.
    table: Vec<f32>,
    half: usize,
}

impl RopeTable {
    /// Angles `position * theta^(-2 i / width)`, formed in f32 as the reference code does.
    /// `width` is the rotated part of a head, an even number.
    #[must_use]
    pub fn new(theta: f64, width: usize, positions: usize) -> Self {
        let half = width / 2;
        let mut table = Vec::with_capacity(positions * width);
        let frequencies: Vec<f32> = (0..half)
            .map(|i| {
                let exponent = (2 * i) as f32 / width as f32;
                1.0 / (theta as f32).powf(exponent)
            })
            .collect();
        for position in 0..positions {
            let angles = frequencies.iter().map(|f| f64::from(position as f32 * f));
            table.extend(angles.clone().map(|angle| angle.cos() as f32));
            table.extend(angles.map(|angle| angle.sin() as f32));
        }
        Self { table, half }
    }

    /// Its numbers, `[positions, 2, half]`.
    pub(crate) fn numbers(&self) -> &[f32] {
        &self.table
    }

    /// Numbers of a head's rotated part, halved.
    pub(crate) fn half(&self) -> usize {
        self.half
    }

    /// Positions it holds.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.table
            .len()
            .checked_div(2 * self.half)
            .unwrap_or(usize::MAX)
    }
}

/// Rotates in place the first `heads` heads of every row of a tensor `[r, >= heads * c]`:
/// `(a, b) -> (a cos - b sin, b cos + a sin)` for the two halves `a`, `b` of a head's rotated part,
/// its first numbers, as many as the table is wide.
pub struct Rope<'a> {
    /// Cosines and sines.
    pub table: &'a RopeTable,
    /// Position of each row, `[r]`.
    pub positions: &'a [u32],
    /// Heads to rotate: the query heads and the key heads behind them.
    pub heads: usize,
    /// Head width `c`, at least the table's.
    pub width: usize,
}

impl InplaceOp1 for Rope<'_> {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (rows, width) = layout.shape().dims2()?;
        let data = f32s_mut(self.name(), storage, layout)?;
        let turned = self.heads * self.width;
        if self.positions.len() != rows || turned > width || self.width < 2 * self.table.half {
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
        parallel::for_rows(
            rows,
            rows * turned,
            |Range {
                 start: from,
                 end: to,
             }| {
                // SAFETY: tasks own disjoint rows.
                let data = unsafe { shared.part(from * width, (to - from) * width) };
                dispatch(Turn {
                    rope: self,
                    positions: &self.positions[from..to],
                    data,
                });
            },
        );
        Ok(())
    }
}

/// Some rows on one thread.
struct Turn<'a> {
    rope: &'a Rope<'a>,
    positions: &'a [u32],
    data: &'a mut [f32],
}

impl Kernel for Turn<'_> {
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
