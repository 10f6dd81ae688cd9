//! Ragged batches compared with plain loops, and bitwise batch invariance.

use super::{AttentionSegment, PagedAttention, View, Visible};
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
    visible: Vec<Visible>,
    q: Vec<f32>,
    /// `[slots, groups, c]`.
    k: Vec<f32>,
    v: Vec<f32>,
}

/// A geometry: slots of a page, query heads, key heads, head width.
type Shape = (usize, usize, usize, usize);

/// What the rows see.
#[derive(Clone, Copy, Debug, PartialEq)]
enum See {
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
            (Self::Holes, 1) => Visible {
                begin: drawn / 2,
                ..prefix
            },
            (Self::Holes, 2) => Visible { beyond, ..prefix },
            (Self::Holes, _) => Visible {
                begin: drawn - drawn / 4,
                end: drawn,
                beyond,
            },
        }
    }
}

/// Segments of `(rows, slots)`.
fn case(seed: u64, shape: Shape, sizes: &[(usize, usize)], see: See) -> Case {
    let (page_size, heads, groups, c) = shape;
    let rows: usize = sizes.iter().map(|s| s.0).sum();
    let count: usize = sizes.iter().map(|s| s.1.div_ceil(page_size)).sum();
    let mut pages: Vec<u32> = (0..count as u32).collect();
    let order = noise(seed ^ 77, count);
    pages.sort_by(|&a, &b| order[a as usize].total_cmp(&order[b as usize]));
    let pool = (count + 1) * page_size * groups * c;
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
        segments.push(AttentionSegment {
            rows: start as u32..visible.len() as u32,
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
        visible,
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
    fn seen(&self, row: usize) -> Vec<usize> {
        let row = self.visible[row];
        let slots = 0..row.reach();
        slots.filter(|&slot| row.sees(slot as u32)).collect()
    }

    fn physical(&self, segment: &AttentionSegment, slot: usize) -> usize {
        let page = self.pages[segment.pages.start as usize + slot / self.page] as usize;
        page * self.page + slot % self.page
    }

    fn op(&self) -> PagedAttention<'_> {
        PagedAttention {
            segments: &self.segments,
            pages: &self.pages,
            visible: &self.visible,
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
        let (mut segments, mut visible, mut q) = (Vec::new(), Vec::new(), Vec::new());
        for rows in rows {
            let from = visible.len() as u32;
            let home = self
                .segments
                .iter()
                .find(|s| s.rows.contains(&rows.start))
                .unwrap();
            for row in rows.clone() {
                visible.push(self.visible[row as usize]);
                q.extend_from_slice(&self.q[row as usize * width..(row as usize + 1) * width]);
            }
            let pages = home.pages.clone();
            segments.push(AttentionSegment {
                rows: from..visible.len() as u32,
                pages,
            });
        }
        let (k, v, pages) = (self.k.clone(), self.v.clone(), self.pages.clone());
        Case {
            segments,
            visible,
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
                    let weights: Vec<(usize, f64)> = self
                        .seen(row)
                        .into_iter()
                        .map(|slot| (slot, (dot(slot) / (c as f64).sqrt()).exp()))
                        .collect();
                    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
                    for &(slot, weight) in &weights {
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

const SEE: [See; 3] = [See::All, See::Prefix, See::Holes];

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
            for (sizes, see) in SIZES.into_iter().flat_map(|s| SEE.map(|see| (s, see))) {
                let case = case(seed as u64, shape, sizes, see);
                for (i, (got, want)) in case.run(set).iter().zip(case.naive()).enumerate() {
                    let error = (f64::from(*got) - want).abs();
                    assert!(
                        error < 3e-6,
                        "{set:?} {shape:?} {sizes:?} {see:?} at {i}: {got} for {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    for set in InstructionSet::available() {
        for (shape, see) in shapes().flat_map(|s| [(s, See::Prefix), (s, See::Holes)]) {
            let case = case(9, shape, &[(70, 131), (40, 64), (190, 190)], see);
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
                    assert!(same, "{set:?} {shape:?} {see:?} row {row} of {parts:?}");
                }
            }
        }
    }
}

#[test]
fn the_op_checks_its_indices() {
    let case = case(1, (16, 2, 1, 8), &[(2, 20)], See::All);
    let device = Device::Cpu;
    let q = Tensor::from_slice(&case.q, (2, 16), &device).unwrap();
    let pool = |pool: Pool| {
        let shape = pool.shape(case.k.len() / 128, 1, 8, 16);
        Tensor::from_vec(case.pool(pool), shape.as_slice(), &device).unwrap()
    };
    let (k, v) = (pool(Pool::Keys), pool(Pool::Values));
    let apply = |op: &PagedAttention<'_>| q.apply_op3_no_bwd(&k, &v, op).map_err(|e| e.to_string());
    assert_eq!(apply(&case.op()).unwrap().dims(), [2, 16]);
    let far = [Visible::prefix(33); 2];
    let error = apply(&PagedAttention {
        visible: &far,
        ..case.op()
    })
    .unwrap_err();
    assert!(error.contains("more slots than its page table"), "{error}");
    let beyond = [Visible::prefix(20); 2].map(|row| Visible {
        beyond: 1 << 12,
        ..row
    });
    let error = apply(&PagedAttention {
        visible: &beyond,
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
    let blind = [0, 20].map(Visible::prefix);
    let out = apply(&PagedAttention {
        visible: &blind,
        ..case.op()
    })
    .unwrap();
    let out = out.to_vec2::<f32>().unwrap();
    assert_eq!(out[0], [0.0; 16]);
    assert!(out[1].iter().all(|x| x.is_finite()));
}

/// A slot after the range is seen as if the range contained it, whatever the instructions.
#[test]
fn slots_beyond_the_range_that_follow_it_make_a_prefix() {
    for set in InstructionSet::available() {
        let whole = case(3, (8, 2, 1, 64), &[(6, 300)], See::All);
        let mut parts = whole.only(&[0..3, 3..6]);
        for (i, row) in parts.visible.iter_mut().enumerate() {
            let tail = [1, 13, 40, 63, 64, 0][i];
            row.end -= tail;
            row.beyond = u64::MAX.checked_shr(u64::BITS - tail).unwrap_or(0);
        }
        let same = whole
            .run(set)
            .iter()
            .map(|x| x.to_bits())
            .eq(parts.run(set).iter().map(|x| x.to_bits()));
        assert!(same, "{set:?}");
    }
}
