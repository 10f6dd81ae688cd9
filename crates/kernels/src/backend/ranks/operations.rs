//! The operations of a pass on ranks.

use super::array::RankArray;
use super::rank::{Rank, joined};
use super::storage::RankMatrix;
use super::{EXPERTS, Ranks};
use crate::backend::{
    ArrayKind, Attention, Backend, ExpertRows, Head, Host, Norm, Pass, ScoredRange, Selection,
};
use crate::cache::KvSizes;
use crate::device::{BatchArrays, BatchLimits};
use crate::score::Scores;
use crate::simd::unit::WeightDtype;
use candle_core::{Result, bail};

/// Why a product cannot be gathered.
const ORDER: &str = "expected a matrix whose columns are in the order of the ranks";
/// Why canvases are refused.
const CANVAS: &str = "ranks run no models with canvases of noise";

impl<B: Rank> Ranks<B> {
    /// The pass of one rank.
    fn pass<'a>(&self, pass: &'a Pass<'_, Self>, rank: usize) -> Result<Pass<'a, B>> {
        let (Some(batch), Some(kv)) = (pass.batch.get(rank), pass.kv.get(rank)) else {
            bail!("rank {rank}: the batch was not uploaded");
        };
        Ok(Pass {
            arrays: pass.arrays,
            batch,
            kv,
            mask: pass.mask,
            clock: pass.clock,
        })
    }

    /// The heads of one rank.
    fn attention<'a>(&self, of: &'a Attention<'_, Self>, rank: usize) -> Attention<'a, B> {
        let ranks = self.all.len();
        Attention {
            layer: of.layer,
            heads: of.heads / ranks,
            groups: of.groups / ranks,
            head_width: of.head_width,
            angles: &of.angles[rank],
            norm: of.norm.map(|norm| Norm {
                weight: &norm.weight[rank],
                eps: norm.eps,
            }),
            windowed: of.windowed,
        }
    }

    /// Calls `run` for every rank.
    fn each_rank(&self, mut run: impl FnMut(&B, usize) -> Result<()>) -> Result<()> {
        let mut all = self.all.iter().enumerate();
        all.try_for_each(|(rank, on)| run(on, rank))
    }
}

impl<B: Rank> Backend for Ranks<B> {
    type Array = RankArray<B::Array>;
    type Batch = Vec<B::Batch>;
    type Kv = Vec<B::Kv>;
    type Scores = Scores;

    const CHUNK: usize = B::CHUNK;

    fn array(&self, kind: ArrayKind, rows: usize, width: usize) -> Result<Self::Array> {
        Ok(RankArray::new(kind, rows, width))
    }

    fn kv(&self, sizes: &[KvSizes]) -> Result<Vec<B::Kv>> {
        let ranks = self.all.len();
        let own = |of: &KvSizes| match of.groups.is_multiple_of(ranks) {
            true => Ok(KvSizes {
                groups: of.groups / ranks,
                ..*of
            }),
            false => bail!(
                "expected key/value heads that {ranks} ranks divide evenly, found {}",
                of.groups
            ),
        };
        let own = sizes.iter().map(own).collect::<Result<Vec<_>>>()?;
        self.all.iter().map(|on| on.kv(&own)).collect()
    }

    fn upload(
        &self,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
        batch: &mut Vec<B::Batch>,
    ) -> Result<()> {
        batch.resize_with(self.all.len(), B::Batch::default);
        let mut each = self.all.iter().zip(batch);
        each.try_for_each(|(on, batch)| on.upload(arrays, limits, batch))
    }

    fn rows(&self, pass: &Pass<'_, Self>) -> usize {
        self.pass(pass, 0).map_or(0, |own| self.all[0].rows(&own))
    }

    fn scored(&self, pass: &Pass<'_, Self>) -> usize {
        self.pass(pass, 0).map_or(0, |own| self.all[0].scored(&own))
    }

    fn copy_pages(&self, pass: &Pass<'_, Self>) -> Result<()> {
        self.each_rank(|on, rank| on.copy_pages(&self.pass(pass, rank)?))
    }

    fn embed(
        &self,
        table: &Vec<B::Table>,
        pass: &Pass<'_, Self>,
        out: &mut Self::Array,
    ) -> Result<()> {
        let own = out.new_own(&self.all)?;
        self.each_rank(|on, rank| on.embed(&table[rank], &self.pass(pass, rank)?, &mut own[rank]))?;
        self.gather(out, self.rows(pass))
    }

    fn norm(
        &self,
        from: Selection<'_, Self>,
        pass: &Pass<'_, Self>,
        norm: Norm<'_, Self>,
        out: &mut Self::Array,
    ) -> Result<()> {
        let (x, out) = (from.of.whole()?, out.new_whole(&self.all)?);
        self.each_rank(|on, rank| {
            let from = Selection {
                of: &x[rank],
                rows: from.rows,
            };
            let norm = Norm {
                weight: &norm.weight[rank],
                eps: norm.eps,
            };
            on.norm(from, &self.pass(pass, rank)?, norm, &mut out[rank])
        })
    }

    fn linear(
        &self,
        matrix: &RankMatrix<B::Matrix>,
        (x, rows): (&Self::Array, usize),
        out: &mut Self::Array,
    ) -> Result<()> {
        let x = x.whole()?;
        let each = match matrix {
            RankMatrix::Divided { in_order, .. } if out.kind == ArrayKind::Inputs && !in_order => {
                bail!("{ORDER}")
            }
            RankMatrix::Divided { each, .. } => each,
            RankMatrix::First(matrix) => {
                return self.all[0].linear(matrix, (&x[0], rows), out.new_first(&self.all)?);
            }
        };
        let own = out.new_own(&self.all)?;
        self.each_rank(|on, rank| on.linear(&each[rank], (&x[rank], rows), &mut own[rank]))?;
        match out.kind {
            // The next product needs whole rows.
            ArrayKind::Inputs => self.gather(out, rows),
            ArrayKind::Sums | ArrayKind::Queries => Ok(()),
        }
    }

    fn linear_add(
        &self,
        matrix: &RankMatrix<B::Matrix>,
        (x, rows): (&Self::Array, usize),
        sum: &mut Self::Array,
    ) -> Result<()> {
        let each = match matrix {
            RankMatrix::Divided {
                each,
                in_order: true,
            } => each,
            _ => bail!("{ORDER}"),
        };
        let (x, own) = (x.whole()?, sum.own_mut()?);
        self.each_rank(|on, rank| on.linear_add(&each[rank], (&x[rank], rows), &mut own[rank]))?;
        self.gather(sum, rows)
    }

    fn split(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        qkv: &mut Self::Array,
        q: &mut Self::Array,
    ) -> Result<()> {
        let (own, queries) = (qkv.own_mut()?, q.new_own(&self.all)?);
        self.each_rank(|on, rank| {
            let attention = self.attention(attention, rank);
            let pass = self.pass(pass, rank)?;
            on.split(&attention, &pass, &mut own[rank], &mut queries[rank])
        })?;
        qkv.clear();
        Ok(())
    }

    fn attend(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        q: &mut Self::Array,
        out: &mut Self::Array,
    ) -> Result<()> {
        let (queries, own) = (q.own_mut()?, out.new_own(&self.all)?);
        self.each_rank(|on, rank| {
            let attention = self.attention(attention, rank);
            let pass = self.pass(pass, rank)?;
            on.attend(&attention, &pass, &mut queries[rank], &mut own[rank])
        })?;
        q.clear();
        self.gather(out, self.rows(pass))
    }

    fn route(&self, _: &RankMatrix<B::Matrix>, _: (&Self::Array, usize)) -> Result<Vec<f32>> {
        bail!("{EXPERTS}")
    }

    fn expert(
        &self,
        _: &[RankMatrix<B::Matrix>; 2],
        _: &Self::Array,
        _: ExpertRows<'_>,
        _: &mut Self::Array,
    ) -> Result<()> {
        bail!("{EXPERTS}")
    }

    fn clear(&self, _: &mut Self::Array, _: (usize, usize)) -> Result<()> {
        bail!("{CANVAS}")
    }

    fn soft(&self, _: &Pass<'_, Self>, _: &mut Self::Array, _: usize) -> Result<()> {
        bail!("{CANVAS}")
    }

    fn norm_add(
        &self,
        _: (&Self::Array, usize),
        _: Norm<'_, Self>,
        _: &mut Self::Array,
    ) -> Result<()> {
        bail!("{CANVAS}")
    }

    fn norm_denoised(
        &self,
        _: &Pass<'_, Self>,
        _: Norm<'_, Self>,
        _: &mut Self::Array,
    ) -> Result<()> {
        bail!("{CANVAS}")
    }

    fn scale(&self, _: &Pass<'_, Self>, _: [f32; 2], _: &mut Self::Array) -> Result<()> {
        bail!("{CANVAS}")
    }

    fn score(
        &self,
        head: &Head<'_, Self>,
        x: &Self::Array,
        rows: ScoredRange<'_, Self>,
        scores: &mut Scores,
    ) -> Result<()> {
        let (RankMatrix::First(matrix), None) = (head.matrix, head.soft) else {
            bail!("expected an LM head on the first rank, without mean embeddings");
        };
        let head = Head {
            matrix,
            cap: head.cap,
            soft: None,
        };
        let range = ScoredRange {
            pass: &self.pass(rows.pass, 0)?,
            range: rows.range,
        };
        self.all[0].score_to_host(&head, &x.whole()?[0], range, scores)
    }

    fn download(&self, x: &Self::Array, rows: usize) -> Result<Vec<f32>> {
        match x.first() {
            Some(first) => self.all[0].download(first, rows),
            None => joined(&self.all, (x.own()?, rows), x.width),
        }
    }
}

impl<B: Rank> Host for Ranks<B> {
    const TEAM: bool = B::TEAM;

    fn instructions(dtype: WeightDtype) -> &'static str {
        B::instructions(dtype)
    }
}
