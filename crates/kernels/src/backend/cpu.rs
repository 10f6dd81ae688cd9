//! This crate's kernels on the processor.

use super::canvas;
use super::counting::Bytes;
use super::rows::Rows;
use super::{
    ArrayKind, Attention, Backend, ExpertRows, Head, Host, Norm, Numbers, Pass, RopeSpec,
    ScoredRange, Selection, Storage, Stored, StoredTable, StoredVector, Table,
};
use crate::attention::PagedAttention;
use crate::cache::{CopyPages, KvSizes, Pool, WriteRows};
use crate::device::{BatchArrays, BatchLimits};
use crate::gather::AddRows;
use crate::linear::{Linear, Matrix};
use crate::norm::{HeadNorm, rms_norm};
use crate::rope::{Rope, RopeTable};
use crate::score::{Scores, score};
use crate::simd::unit::WeightDtype;
use candle_core::{Result, Tensor, bail};

/// The processor.
#[derive(Debug, Default)]
pub struct Cpu {
    bytes: Bytes,
}

/// Keys and values of each layer, in the layouts of [`Pool`].
pub struct PagedTensors(Vec<(Tensor, Tensor)>);

impl PagedTensors {
    fn layer(&self, layer: usize) -> Result<(&Tensor, &Tensor)> {
        match self.0.get(layer) {
            Some((keys, values)) => Ok((keys, values)),
            None => bail!("layer {layer} of {}", self.0.len()),
        }
    }
}

impl Storage for Cpu {
    type Table = StoredTable;
    type Vector = Vec<f32>;
    type Matrix = Linear;
    type RopeTable = RopeTable;
    type Grouped = ();

    fn table(&self, table: Table) -> Result<StoredTable> {
        self.bytes.add(table.bytes());
        StoredTable::new(table)
    }

    fn vector(&self, vector: StoredVector<'_>) -> Result<Vec<f32>> {
        let StoredVector { count, numbers, .. } = vector;
        if numbers.len() != count {
            bail!("{} numbers, expected {count}", numbers.len());
        }
        self.bytes.add_floats(count);
        Ok(numbers.to_vec())
    }

    fn matrix(&self, matrix: Stored<'_>) -> Result<Linear> {
        let Stored { shape, numbers, bias, dtype, epilogue } = matrix;
        let [rows, k] = shape;
        let stored = match numbers {
            Numbers::Blocks(blocks) => Linear::of_blocks(shape, blocks, bias, epilogue)?,
            Numbers::Floats(weight) if rows.checked_mul(k) == Some(weight.len()) => {
                Linear::new(Matrix { weight, k, bias }, dtype, epilogue)?
            }
            Numbers::Floats(weight) => {
                bail!("linear: {} weights for {rows} rows of {k}", weight.len())
            }
        };
        self.bytes.add(stored.bytes());
        Ok(stored)
    }

    fn rope_table(&self, spec: RopeSpec) -> Result<RopeTable> {
        let table = RopeTable::new(&spec);
        self.bytes.add_floats(table.numbers().len() + table.query_factors().len());
        Ok(table)
    }

    fn bytes(&self) -> u64 {
        self.bytes.sum()
    }
}

impl Backend for Cpu {
    type Array = Rows;
    type Batch = ();
    type Kv = PagedTensors;
    type Scores = Scores;

    /// Bounds the memory of the logits.
    const CHUNK: usize = 64;

    canvas::tensor_operations!(rms_norm);

    fn kv(&self, sizes: &[KvSizes]) -> Result<PagedTensors> {
        let each = sizes.iter().flat_map(|sizes| std::iter::repeat_n(sizes, sizes.layers));
        let layers = each.map(|sizes| Ok((Pool::Keys.zeros(sizes)?, Pool::Values.zeros(sizes)?)));
        Ok(PagedTensors(layers.collect::<Result<_>>()?))
    }

    fn upload(&self, _: &BatchArrays<'_>, _: &BatchLimits, (): &mut ()) -> Result<()> {
        Ok(())
    }

    fn copy_pages(&self, pass: &Pass<'_, Self>) -> Result<()> {
        let copies = pass.arrays.copies;
        if copies.is_empty() {
            return Ok(());
        }
        let op = CopyPages { copies };
        pass.kv.0.iter().try_for_each(|(keys, values)| {
            keys.inplace_op1(&op)?;
            values.inplace_op1(&op)
        })
    }

    fn embed(&self, table: &StoredTable, pass: &Pass<'_, Self>, out: &mut Rows) -> Result<()> {
        out.write(|| table.rows(pass.arrays.tokens))
    }

    fn linear_add(&self, matrix: &Linear, x: &Rows, _: usize, sum: &mut Rows) -> Result<()> {
        let added = matrix.forward_add(x.get()?, sum.get()?)?;
        sum.write(|| Ok(added))
    }

    fn split(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        rows: &mut Rows,
        q: &mut Rows,
    ) -> Result<()> {
        let Attention { heads, num_kv_heads, head_width, .. } = *attention;
        let qkv = rows.get()?;
        if let Some(Norm { weight, eps }) = attention.norm {
            qkv.inplace_op1(&HeadNorm { weights: weight, width: head_width, eps })?;
        }
        qkv.inplace_op1(&Rope {
            table: attention.rope_table,
            positions: pass.arrays.positions,
            heads: heads + num_kv_heads,
            queries: heads,
            width: head_width,
        })?;
        let (keys, values) = pass.kv.layer(attention.layer)?;
        let writes = [(Pool::Keys, keys, heads), (Pool::Values, values, heads + num_kv_heads)];
        for (pool, tensor, before) in writes {
            let write = WriteRows { pool, slots: pass.arrays.slots, column: before * head_width };
            tensor.inplace_op2(qkv, &write)?;
        }
        // Attention reads the queries where they are.
        *q = rows.take();
        Ok(())
    }

    fn attend(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        q: &mut Rows,
        out: &mut Rows,
    ) -> Result<()> {
        let arrays = pass.arrays;
        let op = PagedAttention {
            segments: arrays.segments,
            pages: arrays.pages,
            visible: attention.visible(pass),
            heads: attention.heads,
            scale: 1.0 / (attention.head_width as f32).sqrt(),
        };
        let (keys, values) = pass.kv.layer(attention.layer)?;
        out.write(|| q.get()?.apply_op3_no_bwd(keys, values, &op))?;
        q.take();
        Ok(())
    }

    fn expert(
        &self,
        [gate_up, down]: &[Linear; 2],
        x: &Rows,
        ExpertRows { rows, weights }: ExpertRows<'_>,
        sum: &mut Rows,
    ) -> Result<()> {
        let x = x.get()?;
        let ids = Tensor::from_slice(rows, rows.len(), x.device())?;
        let product = down.forward(&gate_up.forward(&x.index_select(&ids, 0)?)?)?;
        sum.get()?.inplace_op2(&product, &AddRows { rows, weights })
    }

    fn score(
        &self,
        head: &Head<'_, Self>,
        x: &Rows,
        rows: ScoredRange<'_, Self>,
        scores: &mut Scores,
    ) -> Result<()> {
        let logits = canvas::logits(head.matrix.forward(x.get()?)?, head.cap, rows.scales())?;
        let scored = score(&logits, &rows.scorer())?;
        scores.candidates.extend(scored.candidates);
        scores.tops.extend(scored.tops);
        if let Some(table) = head.soft {
            logits.inplace_op1(&canvas::Restrict(&rows.scorer()))?;
            let soft = table.forward(&canvas::probabilities(&logits)?)?;
            scores.soft.extend(soft.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(())
    }
}

impl Host for Cpu {
    const TEAM: bool = true;

    fn instructions(dtype: WeightDtype) -> &'static str {
        dtype.instructions()
    }
}
