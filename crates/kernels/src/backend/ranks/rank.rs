//! What a backend does as one of several ranks.

use crate::backend::{Accelerator, ArrayKind, Backend, Cpu, Head, Host, Rows, ScoredRange};
use crate::device::{Array, DeviceScores};
use crate::score::Scores;
use crate::simd::unit::WeightDtype;
use candle_core::{Device, Result, Tensor, bail};
use std::sync::atomic::{AtomicU64, Ordering};

/// A backend that may be one of several ranks.
pub trait Rank: Backend {
    /// As [`Host::TEAM`].
    const TEAM: bool;

    /// As [`Host::instructions`].
    fn instructions(dtype: WeightDtype) -> &'static str;

    /// Overwrites the first rows of `x [., width]`, which lies on this rank, with numbers from the host,
    /// row-major. What [`Backend::download`] reads is written without rounding.
    ///
    /// # Errors
    /// If the array has another shape, or the device fails.
    fn overwrite(&self, x: &mut Self::Array, width: usize, numbers: &[f32]) -> Result<()>;

    /// As [`Backend::score`], with the results on the host.
    ///
    /// # Errors
    /// As [`Backend::score`].
    fn score_to_host(
        &self,
        head: &Head<'_, Self>,
        x: &Self::Array,
        rows: ScoredRange<'_, Self>,
        scores: &mut Scores,
    ) -> Result<()>;

    /// Overwrites on every rank the first `rows` rows of `whole [., width]` with the columns of all
    /// ranks, in rank order. `own` has the columns of each rank, `width / ranks.len()` of each.
    ///
    /// This implementation copies through the host and waits for each rank. A device whose ranks reach
    /// each other's memory overrides it, by peer copies or by NCCL's gather of all ranks.
    ///
    /// # Errors
    /// If an array has another shape, or a device fails.
    fn gather(
        ranks: &[Self],
        (own, rows): (&[Self::Array], usize),
        (whole, width): (&mut [Self::Array], usize),
    ) -> Result<()>
    where
        Self: Sized,
    {
        let all = joined(ranks, (own, rows), width)?;
        let mut each = ranks.iter().zip(whole);
        each.try_for_each(|(on, whole)| on.overwrite(whole, width, &all))
    }
}

/// The first rows of an array on the host, of which each rank has its columns.
pub(super) fn joined<B: Backend>(
    ranks: &[B],
    (own, rows): (&[B::Array], usize),
    width: usize,
) -> Result<Vec<f32>> {
    let columns = width / ranks.len().max(1);
    let read = ranks
        .iter()
        .zip(own)
        .map(|(on, own)| on.download(own, rows));
    let parts = read.collect::<Result<Vec<_>>>()?;
    let mut all = Vec::with_capacity(rows * width);
    for row in 0..rows {
        for part in &parts {
            all.extend_from_slice(&part[row * columns..][..columns]);
        }
    }
    Ok(all)
}

impl Rank for Cpu {
    const TEAM: bool = <Self as Host>::TEAM;

    fn instructions(dtype: WeightDtype) -> &'static str {
        <Self as Host>::instructions(dtype)
    }

    fn overwrite(&self, x: &mut Rows, width: usize, numbers: &[f32]) -> Result<()> {
        let rows = numbers.len() / width.max(1);
        x.write(|| Tensor::from_slice(numbers, (rows, width), &Device::Cpu))
    }

    fn score_to_host(
        &self,
        head: &Head<'_, Self>,
        x: &Rows,
        rows: ScoredRange<'_, Self>,
        scores: &mut Scores,
    ) -> Result<()> {
        self.score(head, x, rows, scores)
    }
}

impl Rank for Accelerator {
    const TEAM: bool = false;

    fn instructions(_: WeightDtype) -> &'static str {
        "CUDA"
    }

    fn overwrite(&self, x: &mut Array, width: usize, numbers: &[f32]) -> Result<()> {
        if x.width() != width {
            bail!("expected rows of {width}, found {}", x.width());
        }
        Ok(x.write(0, numbers)?)
    }

    fn score_to_host(
        &self,
        head: &Head<'_, Self>,
        x: &Array,
        rows: ScoredRange<'_, Self>,
        scores: &mut Scores,
    ) -> Result<()> {
        let (range, pass) = (rows.range.clone(), rows.pass);
        let tops = |scorers: &[crate::ScorerRow]| -> usize {
            scorers.iter().map(|row| row.tops as usize).sum()
        };
        let scorers = pass.arrays.scorers;
        let (before, all) = (tops(&scorers[..range.start]), tops(&scorers[..range.end]));
        let mut own = DeviceScores::default();
        own.reserve(head.matrix, range.end)?;
        self.score(head, x, rows, &mut own)?;
        let mut records = Vec::new();
        own.read(range.end, &mut records)?;
        for (number, record) in records.into_iter().enumerate().skip(range.start) {
            match record {
                Some(record) => scores.records.push(record),
                None => bail!("the logits of scored row {number} are not finite"),
            }
        }
        let mut listed = Vec::new();
        own.read_tops(all, &mut listed)?;
        scores.tops.extend(listed.drain(before..));
        Ok(())
    }
}

/// Numbers that each rank has received from the others in all passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Sums, in f32.
    pub sums: u64,
    /// Inputs of products, in the number format of the ranks' backend.
    pub inputs: u64,
}

/// Adds what ranks exchange.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    sums: AtomicU64,
    inputs: AtomicU64,
}

impl Exchange {
    pub(super) fn add(&self, kind: ArrayKind, numbers: usize) {
        let of = match kind {
            ArrayKind::Sums => &self.sums,
            ArrayKind::Inputs | ArrayKind::Queries => &self.inputs,
        };
        of.fetch_add(numbers as u64, Ordering::Relaxed);
    }

    pub(super) fn sum(&self) -> Exchanged {
        Exchanged {
            sums: self.sums.load(Ordering::Relaxed),
            inputs: self.inputs.load(Ordering::Relaxed),
        }
    }
}
