//! Ragged batches compared with plain loops, and bitwise batch invariance.

use super::{AttentionSegment, PagedAttention, View};
use crate::cache::Pool;
use crate::gemm::tests::noise;
use crate::parallel::Shared;
use crate::simd::InstructionSet;
use candle_core::{Device, Tensor};
use std::mem::MaybeUninit;

/// Slots of a page: small, so that tables are long and rows end at page boundaries; some are a
/// multiple of a vector, some are not.
const PAGES: [usize; 3] = [16, 8, 6];

/// A batch with its pools.
struct Case {
    /// Slots of a page.
    page: usize,
    heads: usize,
    groups: usize,
    c: usize,
    /// Rows and slots of each segment.
    segments: Vec<AttentionSegment>,
    pages: Vec<u32>,
    visible_ends: Vec<u32>,
    q: Vec<f32>,
    /// `[slots, groups, c]`.
    k: Vec<f32>,
    v: Vec<f32>,
}

/// A geometry: slots of a page, query heads, key heads, head width.
type Shape = (usize, usize, usize, usize);

/// Segments of `(rows, slots)`. A row sees a random number of slots, or all slots if `full`.
fn case(seed: u64, shape: Shape, sizes: &[(usize, usize)], full: bool) -> Case {
    let (page_size, heads, groups, c) = shape;
    let rows: usize = sizes.iter().map(|s| s.0).sum();
    let count: usize = sizes.iter().map(|s| s.1.div_ceil(page_size)).sum();
    let mut pages: Vec<u32> = (0..count as u32).collect();
    let order = noise(seed ^ 77, count);
    pages.sort_by(|&a, &b| order[a as usize].total_cmp(&order[b as usize]));
    let pool = (count + 1) * page_size * groups * c;
    let (mut segments, mut visible_ends, mut page) = (Vec::new(), Vec::new(), 0);
    let share = noise(seed ^ 78, rows);
    for &(rows, slots) in sizes {
        let start = visible_ends.len();
        for share in &share[start..start + rows] {
            let drawn = ((share + 1.0) / 2.0 * slots as f32) as u32 + 1;
            visible_ends.push(if full {
                slots as u32
            } else {
                drawn.min(slots as u32)
            });
        }
        let end = page + slots.div_ceil(page_size) as u32;
        segments.push(AttentionSegment {
            rows: start as u32..visible_ends.len() as u32,
            pages: page..end,
        });
        page = end;
    }
    let q = noise(seed + 1, rows * heads * c);
    let (k, v) = (noise(seed + 2, pool), noise(seed + 3, pool));
    let mut case = Case {
        page: page_size,
        heads,
        groups,
        c,
        segments,
        pages,
        visible_ends,
        q,
        k,
        v,
    };
    case.poison();
    case
}

impl Case {
    /// Sets every slot that no row sees to NaN.
    fn poison(&mut self) {
        let part = self.groups * self.c;
        let mut used = vec![false; self.k.len() / part];
        for segment in &self.segments {
            let rows = segment.rows.start as usize..segment.rows.end as usize;
            for row in rows {
                for slot in 0..self.visible_ends[row] as usize {
                    used[self.physical(segment, slot)] = true;
                }
            }
        }
        for slot in (0..used.len()).filter(|&slot| !used[slot]) {
            self.k[slot * part..(slot + 1) * part].fill(f32::NAN);
            self.v[slot * part..(slot + 1) * part].fill(f32::NAN);
        }
    }

    fn physical(&self, segment: &AttentionSegment, slot: usize) -> usize {
        let page = self.pages[segment.pages.start as usize + slot / self.page] as usize;
        page * self.page + slot % self.page
    }

    fn op(&self) -> PagedAttention<'_> {
        PagedAttention {
            segments: &self.segments,
            pages: &self.pages,
            visible_ends: &self.visible_ends,
            heads: self.heads,
            scale: 1.0 / (self.c as f32).sqrt(),
        }
    }

    /// One of the pools in its own layout.
    fn pool(&self, pool: Pool) -> Vec<f32> {
        let (groups, c, page) = (self.groups, self.c, self.page);
        let slots = match pool {
            Pool::Keys => &self.k,
            Pool::Values => &self.v,
        };
        let mut ordered = vec![0.0; slots.len()];
        for (from, &x) in slots.iter().enumerate() {
            let (slot, group, i) = (from / c / groups, from / c % groups, from % c);
            let block = (slot / page * groups + group) * c * page;
            let place = match pool {
                Pool::Keys => i * page + slot % page,
                Pool::Values => slot % page * c + i,
            };
            ordered[block + place] = x;
        }
        ordered
    }

    fn run(&self, set: InstructionSet) -> Vec<f32> {
        let mut out = vec![MaybeUninit::new(f32::NAN); self.q.len()];
        let view = View {
            op: &self.op(),
            q: &self.q,
            stride: self.heads * self.c,
            k: &self.pool(Pool::Keys),
            v: &self.pool(Pool::Values),
            groups: self.groups,
            c: self.c,
            page: self.page,
            out: Shared::new(&mut out),
        };
        view.run(set);
        // SAFETY: initialised above.
        out.into_iter()
            .map(|x| unsafe { x.assume_init() })
            .collect()
    }

    /// The same batch with only some rows of the segments.
    fn only(&self, rows: &[std::ops::Range<u32>]) -> Case {
        let width = self.heads * self.c;
        let (mut segments, mut visible_ends, mut q) = (Vec::new(), Vec::new(), Vec::new());
        for rows in rows {
            let from = visible_ends.len() as u32;
            let home = self
                .segments
                .iter()
                .find(|s| s.rows.contains(&rows.start))
                .unwrap();
            for row in rows.clone() {
                visible_ends.push(self.visible_ends[row as usize]);
                q.extend_from_slice(&self.q[row as usize * width..(row as usize + 1) * width]);
            }
            let pages = home.pages.clone();
            segments.push(AttentionSegment {
                rows: from..visible_ends.len() as u32,
                pages,
            });
        }
        let (k, v, pages) = (self.k.clone(), self.v.clone(), self.pages.clone());
        Case {
            segments,
            visible_ends,
            q,
            k,
            v,
            pages,
            ..*self
        }
    }

    fn naive(&self) -> Vec<f64> {
        let mut out = vec![0.0; self.q.len()];
        let (c, share) = (self.c, self.heads / self.groups);
        for segment in &self.segments {
            for row in segment.rows.start as usize..segment.rows.end as usize {
                for head in 0..self.heads {
                    let at = (row * self.heads + head) * c;
                    let place =
                        |slot| (self.physical(segment, slot) * self.groups + head / share) * c;
                    let dot = |slot: usize| -> f64 {
                        let k = &self.k[place(slot)..][..c];
                        let pairs = self.q[at..at + c].iter().zip(k);
                        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
                    };
                    let weights: Vec<f64> = (0..self.visible_ends[row] as usize)
                        .map(|slot| (dot(slot) / (c as f64).sqrt()).exp())
                        .collect();
                    let total: f64 = weights.iter().sum();
                    for (slot, weight) in weights.iter().enumerate() {
                        for i in 0..c {
                            out[at + i] += weight / total * f64::from(self.v[place(slot) + i]);
                        }
                    }
                }
            }
        }
        out
    }
}

/// Query heads, key heads, head width.
const HEADS: [(usize, usize, usize); 5] =
    [(6, 6, 32), (6, 2, 12), (4, 1, 72), (2, 2, 128), (2, 1, 64)];

/// Every geometry with every page.
fn shapes() -> impl Iterator<Item = Shape> {
    let with = |page| HEADS.map(|(heads, groups, c)| (page, heads, groups, c));
    PAGES.into_iter().flat_map(with)
}

const SIZES: [&[(usize, usize)]; 4] = [
    &[(1, 1)],
    &[(1, 16), (3, 17), (16, 15), (2, 64), (5, 65), (1, 63)],
    &[(113, 113), (1, 200), (33, 48)],
    &[(200, 131)],
];

#[test]
fn ragged_batches_equal_plain_loops() {
    for set in InstructionSet::available() {
        for (seed, shape) in shapes().enumerate() {
            for (sizes, full) in SIZES.into_iter().flat_map(|s| [(s, true), (s, false)]) {
                let case = case(seed as u64, shape, sizes, full);
                for (i, (got, want)) in case.run(set).iter().zip(case.naive()).enumerate() {
                    let error = (f64::from(*got) - want).abs();
                    assert!(
                        error < 3e-6,
                        "{set:?} {shape:?} {sizes:?} at {i}: {got} for {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    for set in InstructionSet::available() {
        for shape in shapes() {
            let case = case(9, shape, &[(70, 131), (40, 64), (190, 190)], false);
            let width = shape.1 * shape.3;
            let all = case.run(set);
            for parts in [
                vec![0..1, 1..2],
                vec![69..70, 3..4],
                vec![3..4, 5..6],
                vec![110..300, 0..1],
                vec![200..217, 70..110, 1..7, 7..70],
            ] {
                let some = case.only(&parts).run(set);
                for (i, row) in parts.iter().cloned().flatten().enumerate() {
                    let (a, b) = (
                        &some[i * width..(i + 1) * width],
                        &all[row as usize * width..],
                    );
                    let same = a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{set:?} {shape:?} row {row} of {parts:?}");
                }
            }
        }
    }
}

#[test]
fn the_op_checks_its_indices() {
    let case = case(1, (16, 2, 1, 8), &[(2, 20)], true);
    let device = Device::Cpu;
    let q = Tensor::from_slice(&case.q, (2, 16), &device).unwrap();
    let pool = |pool: Pool| {
        let shape = pool.shape(case.k.len() / 128, 1, 8, 16);
        Tensor::from_vec(case.pool(pool), shape.as_slice(), &device).unwrap()
    };
    let (k, v) = (pool(Pool::Keys), pool(Pool::Values));
    let apply = |op: &PagedAttention<'_>| q.apply_op3_no_bwd(&k, &v, op).map_err(|e| e.to_string());
    assert_eq!(apply(&case.op()).unwrap().dims(), [2, 16]);
    let far = [33, 33];
    let error = apply(&PagedAttention {
        visible_ends: &far,
        ..case.op()
    })
    .unwrap_err();
    assert!(error.contains("more slots than its page table"), "{error}");
    let outside = [0, 3];
    let error = apply(&PagedAttention {
        pages: &outside,
        ..case.op()
    })
    .unwrap_err();
    assert!(error.contains("page 3 is outside"), "{error}");
    let short = [AttentionSegment {
        rows: 0..1,
        pages: 0..2,
    }];
    let error = apply(&PagedAttention {
        segments: &short,
        ..case.op()
    })
    .unwrap_err();
    assert!(error.contains("end at row 1 of 2"), "{error}");
    let blind = [0, 20];
    let out = apply(&PagedAttention {
        visible_ends: &blind,
        ..case.op()
    })
    .unwrap();
    let out = out.to_vec2::<f32>().unwrap();
    assert_eq!(out[0], [0.0; 16]);
    assert!(out[1].iter().all(|x| x.is_finite()));
}
