//! Products with codes of four to eight bits in groups of 32, each with a scale and a minimum: a
//! weight is `scale * code + minimum`.
//!
//! A row of activations is 8-bit integers with a scale for each group of 32. Sums of integers are
//! exact. They are added to a sum in f32 group by group: `sum + codes * (scale * row's scale)`, then
//! `+ minimum * row's sum`, each rounded once, so every instruction set yields the same bits.
//!
//! A step of a row has, for each group, four words of numbers and then its integers. The numbers are the
//! scale, the scale times the sum of the integers, and the same for the first and for the second 16
//! integers. The integers are 8 words of four bytes, or where [`row_parts`] is 2, 16 words: for each
//! four integers two words of 16 bits each, integers 0 and 2, then integers 1 and 3.
//!
//! Codes of 4-bit floats are looked up: twice the number, plus 12. A word has the scales of the first and of the
//! last 16 codes in place of a scale and a minimum, and products are multiplied by the column's factor.
//!
//! Codes of listed forms are looked up: the number plus 128. Scales are the products of both numbers of the word
//! and of a factor for each 16 codes.
//!
//! A step of a column is a group or, in fine forms, eight of them. It begins with a scale and a
//! minimum, numbers of 16 bits. In fine forms, four words with 16 factors follow: two for each group,
//! of the scale and of the minimum, or with six bits one for each 16 codes, plus 128. With two bits, a factor
//! has four bits for the scale of 16 codes and above them four for the minimum. A group has
//! four words with the low four bits of its codes (byte `b` of word `i` has codes `8 i + b` and
//! `8 i + 4 + b`), then a word for each further bit of a code (with one bit more, bit `p` of byte
//! `b` belongs to code `4 p + b`; with two, they are the bits `2 (p % 4)` and above of word `p / 4`).
//! Codes of eight bits are eight words. Before the codes of 8-bit floats, the word is a scale in f32;
//! `gemm::widen` makes bf16 of them.

mod form;
mod integers;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::Simd;
use super::dot::{Columns, Multiply, MultiplyKernel, RowPointer, prefetch};
pub(crate) use form::ByteSet;
pub use form::Form;
use integers::Integers;
#[cfg(target_arch = "aarch64")]
use neon::NeonIntegers;
use portable::PortableIntegers;
#[cfg(target_arch = "x86_64")]
use x86::{Avx2Integers, Avx512Integers};

/// Numbers of a group.
pub(crate) const GROUP: usize = 32;
/// Position of the scale in a group of a row.
pub(crate) const SCALE: usize = 0;
/// Positions of the scaled sums of all, the first 16 and the last 16 integers of a group.
pub(crate) const SUMS: [usize; 3] = [1, 2, 3];
/// Position of the integers in a group of a row.
pub(crate) const INTEGERS: usize = 4;

/// Words of a group of a row with this number of words for each four integers.
pub(crate) const fn row_words(parts: usize) -> usize {
    INTEGERS + parts * GROUP / 4
}
/// Groups of a step of a fine form.
const FINE_GROUPS: usize = 8;
/// Words before the groups of a step of a fine form.
pub(crate) const FINE_HEAD: usize = 5;
/// A factor of a scale of 16 codes is stored plus this number.
pub(crate) const FACTOR_OFFSET: f32 = 128.0;

/// The multiplier of the form with number `FORM`, and the list of its codes. Listed forms have one multiplier.
#[derive(Clone, Copy)]
struct Groups<U, const FORM: usize>(U, &'static [u8; 16]);

/// The scales and the minimums of two vectors of columns.
type Affine<S> = [[<S as Simd>::F; 2]; 2];

/// The codes of a group that have one scale and one minimum.
#[derive(Clone, Copy)]
struct Share<S: Simd> {
    affine: Affine<S>,
    /// Position of the row's scaled sum over the same codes.
    sum: usize,
}

/// Sums of the products of a group in integers.
struct Sums<U: Integers, const R: usize> {
    /// As [`Integers::add_products`] has them.
    few: [[U::I; 2]; R],
    /// A word of 32 bits.
    sums: [[U::I; 2]; R],
}

/// A step of two vectors of columns.
#[derive(Clone, Copy)]
struct Step<S: Simd> {
    start: *const u32,
    /// Words from one word of a column to its next.
    stride: usize,
    head: Affine<S>,
}

impl<U: Integers, const FORM: usize> Groups<U, FORM> {
    const F: Form = Form::ALL[FORM];
    const BITS: usize = Self::F.bits();
    const FINE: bool = Self::F.is_fine();
    /// Words of a row for each four integers.
    const PARTS: usize = if Self::F.is_wide() { U::BYTE_PARTS } else { 1 };
    /// Parts of a group that are summed at once: at most the parts of a scale.
    const SUMMED: usize = match (Self::F.is_split(), integers::parts::<U>(Self::BITS)) {
        (true, 5..) => 4,
        (_, parts) => parts,
    };

    /// Scales and minimums at the beginning of a step.
    // Closures over vectors are avoided here and below: one that is not inlined is compiled without
    // the instruction set.
    #[inline(always)]
    unsafe fn head(self, step: *const u32) -> Affine<U::S> {
        let (s, lanes, halves) = (self.0.simd(), U::S::LANES, step.cast::<u16>());
        // SAFETY: a row of words has two halves for each of two vectors.
        unsafe {
            let low = (s.load_f16(halves), s.load_f16(halves.wrapping_add(lanes)));
            let high = halves.wrapping_add(2 * lanes);
            let high = (s.load_f16(high), s.load_f16(high.wrapping_add(lanes)));
            if Self::F.is_listed() {
                return [[s.mul(low.0, low.1), s.mul(high.0, high.1)]; 2];
            }
            [[low.0, high.0], [low.1, high.1]]
        }
    }

    /// The factors in the `bits` bits from `first` on of the factors of two vectors of columns.
    #[inline(always)]
    unsafe fn factors(self, step: Step<U::S>, first: usize, bits: u32) -> [<U::S as Simd>::F; 2] {
        let (u, shift, mask) = (self.0, (first % 32) as u32, (1 << bits) - 1);
        let words = step.start.wrapping_add((1 + first / 32) * step.stride);
        // SAFETY: the factors follow the first row of words.
        unsafe {
            let (low, high) = (u.load(words), u.load(words.wrapping_add(U::S::LANES)));
            let low = u.and(u.right(low, shift), mask);
            let high = u.and(u.right(high, shift), mask);
            [u.floats(low), u.floats(high)]
        }
    }

    /// Scales and minimums of part `part` of group `group`: of all its codes, or of 16.
    #[inline(always)]
    unsafe fn affine(self, step: Step<U::S>, group: usize, part: usize) -> Affine<U::S> {
        let (s, [scales, minimums]) = (self.0.simd(), step.head);
        let offset = s.splat(-Self::F.offset());
        if Self::F == Form::Nvfp4 {
            let [low, high] = step.head[part];
            return [[low, high], [s.mul(low, offset), s.mul(high, offset)]];
        }
        if !Self::FINE {
            return step.head;
        }
        // The first bit of the factors.
        let first = 16 * group + 8 * part;
        // SAFETY: the caller's promise.
        unsafe {
            if Self::F.is_listed() || Self::F == Form::FineSix {
                let [low, high] = self.factors(step, first, 8);
                let more = s.splat(FACTOR_OFFSET);
                let low = s.mul(scales[0], s.sub(low, more));
                let high = s.mul(scales[1], s.sub(high, more));
                return [[low, high], [s.mul(low, offset), s.mul(high, offset)]];
            }
            let bits = if Self::F.is_split() { 4 } else { 8 };
            let scale = self.factors(step, first, bits);
            let minimum = self.factors(step, first + bits as usize, bits);
            [
                [s.mul(scales[0], scale[0]), s.mul(scales[1], scale[1])],
                [s.mul(minimums[0], minimum[0]), s.mul(minimums[1], minimum[1])],
            ]
        }
    }

    /// The codes `4 P .. 4 P + 4` of a group of a vector of columns.
    #[inline(always)]
    unsafe fn codes<const P: u32>(self, words: *const u32, stride: usize) -> U::I {
        let (u, part) = (self.0, P as usize);
        if Self::BITS == 8 {
            // SAFETY: the words of a group, by the caller's promise.
            return unsafe { u.load(words.wrapping_add(part * stride)) };
        }
        // SAFETY: as above.
        let both = unsafe { u.load(words.wrapping_add(part / 2 * stride)) };
        let low = match P % 2 {
            0 => both,
            _ => u.right(both, 4),
        };
        let low = u.and(low, 0x0F0F_0F0F);
        // The bits above move to bit 4 of each byte.
        let (word, shift, mask) = match Self::BITS {
            4 if Self::F.list().is_some() => return u.bytes(self.1, low),
            4 => return low,
            5 => (4, P, 0x1010_1010),
            _ => (4 + part / 4, 2 * (P % 4), 0x3030_3030),
        };
        // SAFETY: as above.
        let more = unsafe { u.load(words.wrapping_add(word * stride)) };
        let more = match shift {
            0..4 => u.left(more, 4 - shift),
            _ => u.right(more, shift - 4),
        };
        u.or(low, u.and(more, mask))
    }

    /// Adds the products of the codes `4 P .. 4 P + 4` to sums: to `few` until these are full or a scale
    /// ends, then those to `sums`.
    #[inline(always)]
    unsafe fn part<const P: u32, const R: usize>(
        self,
        Sums { few, sums }: &mut Sums<U, R>,
        rows: &[*const u32; R],
        (words, stride): (*const u32, usize),
    ) {
        let u = self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let low = self.codes::<P>(words, stride);
            let high = self.codes::<P>(words.wrapping_add(U::S::LANES), stride);
            let index = INTEGERS + P as usize * Self::PARTS;
            // Not `zip`, which is a call in development builds (`lto` in Cargo.toml).
            if Self::F.is_wide() {
                for r in 0..R {
                    u.add_byte_products((rows[r], index), [low, high], &mut sums[r]);
                }
                return;
            }
            for r in 0..R {
                u.add_products((rows[r], index), [low, high], &mut few[r]);
            }
        }
        let done = P as usize + 1;
        if done.is_multiple_of(Self::SUMMED) {
            for r in 0..R {
                sums[r][0] = u.add_sums(few[r][0], sums[r][0]);
                sums[r][1] = u.add_sums(few[r][1], sums[r][1]);
                few[r] = [u.zero(); 2];
            }
        }
    }

    /// Adds sums of integers to a tile.
    #[inline(always)]
    unsafe fn fold<const R: usize>(
        self,
        tile: &mut [[<U::S as Simd>::F; 2]; R],
        sums: &[[U::I; 2]; R],
        rows: &[*const u32; R],
        share: Share<U::S>,
    ) {
        let (u, s, sum) = (self.0, self.0.simd(), share.sum);
        let [scales, minimums] = share.affine;
        for r in 0..R {
            // SAFETY: the words of a group of a row.
            let (scale, sum) = unsafe {
                let words = (*rows[r].wrapping_add(SCALE), *rows[r].wrapping_add(sum));
                (f32::from_bits(words.0), f32::from_bits(words.1))
            };
            let (scale, sum) = (s.splat(scale), s.splat(sum));
            for half in 0..2 {
                let factor = s.mul(scales[half], scale);
                let total = u.fused(u.floats(sums[r][half]), factor, tile[r][half]);
                tile[r][half] = u.fused(minimums[half], sum, total);
            }
        }
    }

    /// Adds the products of a group to a tile.
    #[inline(always)]
    unsafe fn group<const R: usize>(
        self,
        tile: &mut [[<U::S as Simd>::F; 2]; R],
        rows: &[*const u32; R],
        step: Step<U::S>,
        group: usize,
    ) {
        let first = if Self::FINE { FINE_HEAD } else { 1 };
        let codes = step.start.wrapping_add((first + group * Self::BITS) * step.stride);
        let codes = (codes, step.stride);
        let zeros = [[self.0.zero(); 2]; R];
        let mut sums = Sums { few: zeros, sums: zeros };
        // SAFETY: the caller's promise.
        unsafe {
            self.part::<0, R>(&mut sums, rows, codes);
            self.part::<1, R>(&mut sums, rows, codes);
            self.part::<2, R>(&mut sums, rows, codes);
            self.part::<3, R>(&mut sums, rows, codes);
            if Self::F.is_split() {
                let affine = self.affine(step, group, 0);
                self.fold(tile, &sums.sums, rows, Share { affine, sum: SUMS[1] });
                sums.sums = zeros;
            }
            self.part::<4, R>(&mut sums, rows, codes);
            self.part::<5, R>(&mut sums, rows, codes);
            self.part::<6, R>(&mut sums, rows, codes);
            self.part::<7, R>(&mut sums, rows, codes);
            let (part, sum) = if Self::F.is_split() { (1, SUMS[2]) } else { (0, SUMS[0]) };
            let affine = self.affine(step, group, part);
            self.fold(tile, &sums.sums, rows, Share { affine, sum });
        }
    }
}

impl<U: Integers, const FORM: usize> Multiply for Groups<U, FORM> {
    type S = U::S;
    type Sum = <U::S as Simd>::F;
    const TILE_ROWS: usize = U::TILE_ROWS;
    const STARTS: bool = false;
    const ROW: usize = Self::F.groups() * row_words(Self::PARTS);
    const COLUMN: usize = Self::F.column();

    #[inline(always)]
    fn simd(self) -> U::S {
        self.0.simd()
    }
    #[inline(always)]
    fn zero(self) -> Self::Sum {
        self.simd().splat(0.0)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const u32) -> Self::Sum {
        // SAFETY: the caller's promise.
        unsafe { self.simd().load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u32, sum: Self::Sum) {
        // SAFETY: the caller's promise.
        unsafe { self.simd().store(p.cast(), sum) }
    }
    #[inline(always)]
    fn value(self, sum: Self::Sum, _: f32, columns: Self::Sum) -> Self::Sum {
        if Self::F == Form::Nvfp4 { self.simd().mul(sum, columns) } else { sum }
    }

    #[inline(always)]
    unsafe fn accumulate<const R: usize>(
        self,
        tile: &mut [[Self::Sum; 2]; R],
        steps: usize,
        a: RowPointer,
        b: Columns,
    ) {
        let mut sums = *tile;
        let (ahead, fetched) = b.ahead;
        for step in 0..steps {
            for line in (0..fetched).step_by(16) {
                prefetch::<U::S, R>(self.simd(), ahead.wrapping_add(step * fetched + line));
            }
            let start = b.low.wrapping_add(step * Self::COLUMN * b.stride);
            // SAFETY: the words of a step of the columns and of the rows, by the caller's promise.
            unsafe {
                let head = self.head(start);
                let stride = b.stride;
                for group in 0..Self::F.groups() {
                    let first = (step * Self::F.groups() + group) * row_words(Self::PARTS);
                    let rows: [*const u32; R] =
                        std::array::from_fn(|r| a.first.wrapping_add(r * a.stride + first));
                    self.group(&mut sums, &rows, Step { start, stride, head }, group);
                }
            }
        }
        *tile = sums;
    }
}

/// Runs `kernel` with the multiplier of `form` on `set`, which this processor must support.
pub(crate) fn dispatch_blocks<K: MultiplyKernel>(set: ByteSet, form: Form, kernel: K) {
    let has = ByteSet::available().any(|other| other == set);
    assert!(has, "this processor does not support {set:?}");
    match form {
        Form::Four => on_set::<K, { Form::Four as usize }>(set, form, kernel),
        Form::Five => on_set::<K, { Form::Five as usize }>(set, form, kernel),
        Form::Eight => on_set::<K, { Form::Eight as usize }>(set, form, kernel),
        Form::FineFour => on_set::<K, { Form::FineFour as usize }>(set, form, kernel),
        Form::FineFive => on_set::<K, { Form::FineFive as usize }>(set, form, kernel),
        Form::FineSix => on_set::<K, { Form::FineSix as usize }>(set, form, kernel),
        Form::FineTwo => on_set::<K, { Form::FineTwo as usize }>(set, form, kernel),
        Form::Nvfp4 => on_set::<K, { Form::Nvfp4 as usize }>(set, form, kernel),
        Form::Iq4 | Form::Iq3S | Form::Iq3Xxs | Form::Iq2 => {
            on_set::<K, { Form::Iq4 as usize }>(set, form, kernel);
        }
        Form::Fp8 | Form::F16 => unreachable!("{form:?} has another multiplier"),
    }
}

fn on_set<K: MultiplyKernel, const FORM: usize>(set: ByteSet, form: Form, kernel: K) {
    let list = form.list().unwrap_or(&[0; 16]);
    #[cfg(target_arch = "x86_64")]
    match set {
        // SAFETY: the processor has the instructions, checked before.
        ByteSet::Avx512 => return unsafe { on_avx512::<K, FORM>(list, kernel) },
        // SAFETY: as above.
        ByteSet::Avx2 => return unsafe { on_avx2::<K, FORM>(list, kernel) },
        _ => {}
    }
    #[cfg(target_arch = "aarch64")]
    match set {
        // SAFETY: the processor has the instructions, checked before.
        ByteSet::NeonMixed => return unsafe { on_mixed::<K, FORM>(list, kernel) },
        // SAFETY: as above.
        ByteSet::NeonDot => return unsafe { on_dot::<K, FORM>(list, kernel) },
        // SAFETY: as above.
        ByteSet::Neon => return unsafe { on_neon::<K, FORM>(list, kernel) },
        _ => {}
    }
    debug_assert_eq!(set, ByteSet::Portable);
    kernel.run(Groups::<_, FORM>(PortableIntegers, list));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni,avx2,fma")]
fn on_avx512<K: MultiplyKernel, const FORM: usize>(list: &'static [u8; 16], kernel: K) {
    kernel.run(Groups::<_, FORM>(Avx512Integers::here(), list));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn on_avx2<K: MultiplyKernel, const FORM: usize>(list: &'static [u8; 16], kernel: K) {
    kernel.run(Groups::<_, FORM>(Avx2Integers::here(), list));
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod,i8mm")]
fn on_mixed<K: MultiplyKernel, const FORM: usize>(list: &'static [u8; 16], kernel: K) {
    kernel.run(Groups::<_, FORM>(NeonIntegers::mixed(), list));
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn on_dot<K: MultiplyKernel, const FORM: usize>(list: &'static [u8; 16], kernel: K) {
    kernel.run(Groups::<_, FORM>(NeonIntegers::signed(), list));
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn on_neon<K: MultiplyKernel, const FORM: usize>(list: &'static [u8; 16], kernel: K) {
    kernel.run(Groups::<_, FORM>(NeonIntegers::widened(), list));
}
