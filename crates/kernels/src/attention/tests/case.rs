//! A batch with its pools, and what plain loops make of it.

use super::super::{PagedAttention, View, Visible};
use super::Way;
use crate::cache::{CopyPages, KvDtype, KvNumber, KvSizes, Pool, WriteRows};
use crate::gemm::row_scale;
use crate::gemm::tests::noise;
use crate::parallel::Shared;
use crate::storage::numbers;
use candle_core::{Device, Storage, Tensor};
use half::bf16;
use std::mem::MaybeUninit;
use step::{PageCopy, PageId, Sampling, Segment};

/// A batch with its pools.
pub(super) struct Case {
    /// Slots of a page.
    page: usize,
    pub(super) heads: usize,
    num_kv_heads: usize,
    pub(super) c: usize,
    dtype: KvDtype,
    /// Rows and slots of each segment.
    segments: Vec<Segment>,
    pub(super) pages: Vec<PageId>,
    pub(super) visible: Vec<Visible>,
    pub(super) q: Vec<f32>,
    /// `[slots, groups, c]`, rounded to the format.
    pub(super) k: Vec<f32>,
    v: Vec<f32>,
}

/// A geometry: slots of a page, query heads, key heads, head width.
pub(super) type Shape = (usize, usize, usize, usize);

/// The visibility of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum See {
    /// All slots.
    All,
    /// Random numbers of slots.
    Prefix,
    /// In turns a prefix, a window, single slots after a prefix, and single slots after a window.
    Holes,
}

impl See {
    /// Row `i` of a segment of `slots` slots; `drawn` and `bits` are random, `drawn` at most `slots`.
    fn row(self, i: usize, (drawn, slots): (u32, u32), bits: u64) -> Visible {
        let prefix = Visible::prefix(drawn);
        let rest = u64::BITS - slots.saturating_sub(drawn).min(u64::BITS);
        let beyond = u64::MAX.checked_shr(rest).unwrap_or(0) & bits;
        match (self, i % 4) {
            (Self::All, _) => Visible::prefix(slots),
            (Self::Prefix, _) | (Self::Holes, 0) => prefix,
            (Self::Holes, 1) => Visible { begin: drawn / 2, ..prefix },
            (Self::Holes, 2) => Visible { beyond, ..prefix },
            (Self::Holes, _) => Visible { begin: drawn - drawn / 4, end: drawn, beyond },
        }
    }
}

/// Segments of `(rows, slots)`, keys and values in `dtype`.
pub(super) fn case(
    (seed, dtype): (u64, KvDtype),
    shape: Shape,
    sizes: &[(usize, usize)],
    see: See,
) -> Case {
    let (page_size, heads, num_kv_heads, c) = shape;
    let rows: usize = sizes.iter().map(|s| s.0).sum();
    let count: usize = sizes.iter().map(|s| s.1.div_ceil(page_size)).sum();
    let mut pages: Vec<PageId> = (0..count as u32).map(PageId).collect();
    let order = noise(seed ^ 77, count);
    pages.sort_by(|&a, &b| order[a.index()].total_cmp(&order[b.index()]));
    let pool = (count + 1) * page_size * num_kv_heads * c;
    let (mut segments, mut visible, mut page) = (Vec::new(), Vec::new(), 0);
    let share = noise(seed ^ 78, rows);
    for &(rows, slots) in sizes {
        let start = visible.len();
        for (i, share) in share[start..start + rows].iter().enumerate() {
            let drawn = ((share + 1.0) / 2.0 * slots as f32) as u32 + 1;
            let bits = u64::from(share.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            visible.push(see.row(i, (drawn.min(slots as u32), slots as u32), bits));
        }
        let end = page + slots.div_ceil(page_size) as u32;
        segments.push(Segment {
            rows: start as u32..visible.len() as u32,
            pages: page..end,
            sampling: Sampling::GREEDY,
        });
        page = end;
    }
    let q = noise(seed + 1, rows * heads * c);
    let kept = |seed| kept(dtype, &noise(seed, pool), c);
    let (k, v) = (kept(seed + 2), kept(seed + 3));
    let mut case =
        Case { page: page_size, heads, num_kv_heads, c, dtype, segments, pages, visible, q, k, v };
    case.poison();
    case
}

/// Numbers `[.., c]` rounded to a format.
fn kept(dtype: KvDtype, numbers: &[f32], c: usize) -> Vec<f32> {
    let kept = |head: &[f32]| -> Vec<f32> {
        let (scale, inverse) = row_scale(head);
        let numbers = head.iter().map(|x| match dtype {
            KvDtype::F32 => *x,
            KvDtype::Bf16 => bf16::from_f32(*x).to_f32(),
            KvDtype::Int8 => (x * inverse).round_ties_even() * scale,
        });
        numbers.collect()
    };
    numbers.chunks_exact(c).flat_map(kept).collect()
}

impl Case {
    /// Sets every slot that no row sees to NaN.
    pub(super) fn poison(&mut self) {
        let part = self.num_kv_heads * self.c;
        let mut used = vec![false; self.k.len() / part];
        for segment in &self.segments {
            let rows = segment.rows.start as usize..segment.rows.end as usize;
            for row in rows {
                for slot in self.seen(row) {
                    used[self.physical(segment, slot)] = true;
                }
            }
        }
        for slot in (0..used.len()).filter(|&slot| !used[slot]) {
            self.k[slot * part..(slot + 1) * part].fill(f32::NAN);
            self.v[slot * part..(slot + 1) * part].fill(f32::NAN);
        }
    }

    /// The slots that a row sees.
    pub(super) fn seen(&self, row: usize) -> Vec<usize> {
        let row = self.visible[row];
        let slots = 0..row.reach();
        slots.filter(|&slot| row.sees(slot as u32)).collect()
    }

    fn physical(&self, segment: &Segment, slot: usize) -> usize {
        let page = self.pages[segment.pages.start as usize + slot / self.page].index();
        page * self.page + slot % self.page
    }

    pub(super) fn op(&self) -> PagedAttention<'_> {
        PagedAttention {
            segments: &self.segments,
            pages: &self.pages,
            visible: &self.visible,
            heads: self.heads,
            scale: 1.0 / (self.c as f32).sqrt(),
        }
    }

    /// One of the pools: the slots are written to other pages, then the pages are copied.
    pub(super) fn pool(&self, pool: Pool) -> Tensor {
        let numbers = match pool {
            Pool::Keys => &self.k,
            Pool::Values => &self.v,
        };
        let width = self.num_kv_heads * self.c;
        let slots = numbers.len() / width;
        let pages = slots / self.page;
        let sizes = KvSizes {
            dtype: self.dtype,
            layers: 1,
            num_kv_heads: self.num_kv_heads,
            head_width: self.c,
            page: self.page,
            pages: 2 * pages,
        };
        let device = Device::Cpu;
        let tensor = pool.zeros(&sizes).unwrap();
        let write = WriteRows {
            pool,
            slots: &(slots as u32..2 * slots as u32).collect::<Vec<_>>(),
            column: 0,
        };
        let rows = Tensor::from_slice(numbers, (slots, width), &device).unwrap();
        tensor.inplace_op2(&rows, &write).unwrap();
        let copies: Vec<_> = (0..pages as u32)
            .map(|page| PageCopy { source: PageId(pages as u32 + page), destination: PageId(page) })
            .collect();
        tensor.inplace_op1(&CopyPages { copies: &copies }).unwrap();
        tensor.narrow(0, 0, pages).unwrap()
    }

    pub(super) fn run(&self, way: Way) -> Vec<f32> {
        match self.dtype {
            KvDtype::F32 => self.run_on::<f32>(way),
            KvDtype::Bf16 => self.run_on::<bf16>(way),
            KvDtype::Int8 => self.run_on::<u8>(way),
        }
    }

    fn run_on<N: KvNumber>(&self, way: Way) -> Vec<f32> {
        let pools = [Pool::Keys, Pool::Values].map(|kind| (kind, self.pool(kind)));
        let [k, v] = pools.each_ref().map(|(kind, tensor)| {
            let (storage, layout) = tensor.storage_and_layout();
            let Storage::Cpu(storage) = &*storage else {
                panic!("a tensor on the CPU");
            };
            let shape = kind.sizes::<N>(layout).unwrap();
            (numbers::<N>("test", storage, layout).unwrap().to_vec(), shape)
        });
        let mut out = vec![MaybeUninit::new(f32::NAN); self.q.len()];
        let view = View {
            op: &self.op(),
            q: &self.q,
            stride: self.heads * self.c,
            k: &k.0,
            v: &v.0,
            shape: k.1,
            out: Shared::new(&mut out),
        };
        view.run(way.set, way.pairs);
        // SAFETY: initialised above.
        out.into_iter().map(|x| unsafe { x.assume_init() }).collect()
    }

    /// The same batch with only some rows of the segments.
    pub(super) fn only(&self, rows: &[std::ops::Range<u32>]) -> Case {
        let width = self.heads * self.c;
        let (mut segments, mut visible, mut q) = (Vec::new(), Vec::new(), Vec::new());
        for rows in rows {
            let first = visible.len() as u32;
            let home = self.segments.iter().find(|s| s.rows.contains(&rows.start)).unwrap();
            for row in rows.clone() {
                visible.push(self.visible[row as usize]);
                q.extend_from_slice(&self.q[row as usize * width..(row as usize + 1) * width]);
            }
            let pages = home.pages.clone();
            segments.push(Segment {
                rows: first..visible.len() as u32,
                pages,
                sampling: Sampling::GREEDY,
            });
        }
        let (k, v, pages) = (self.k.clone(), self.v.clone(), self.pages.clone());
        Case { segments, visible, q, k, v, pages, ..*self }
    }

    pub(super) fn naive(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.q.len()];
        let (c, share) = (self.c, self.heads / self.num_kv_heads);
        for segment in &self.segments {
            for row in segment.rows.start as usize..segment.rows.end as usize {
                for head in 0..self.heads {
                    let start = (row * self.heads + head) * c;
                    let place = |slot| {
                        (self.physical(segment, slot) * self.num_kv_heads + head / share) * c
                    };
                    let dot = |slot: usize| -> f64 {
                        let k = &self.k[place(slot)..][..c];
                        let pairs = self.q[start..start + c].iter().zip(k);
                        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
                    };
                    let weights: Vec<(usize, f64)> = self
                        .seen(row)
                        .into_iter()
                        .map(|slot| (slot, (dot(slot) / (c as f64).sqrt()).exp()))
                        .collect();
                    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
                    for &(slot, weight) in &weights {
                        for i in 0..c {
                            out[start + i] += weight / total * f64::from(self.v[place(slot) + i]);
                        }
                    }
                }
            }
        }
        out
    }
}
