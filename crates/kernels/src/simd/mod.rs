//! Vector instructions behind one trait; the instruction set is chosen at run time.
//!
//! A kernel is written once with [`Simd`] and compiled for every instruction set. A token of an
//! instruction set exists only on a processor that supports it, which makes its methods safe.

/// Wraps intrinsics: the token proves that they exist.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! safe {
    ($e:expr) => {
        // SAFETY: `self` proves the instruction set; pointers are the caller's promise.
        unsafe { $e }
    };
}

/// Methods of a token, each with its arguments, its result and its intrinsics.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? => $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) $(-> $result)? {
            safe!($body)
        }
    )*};
}

/// The same, of methods whose pointers the caller must answer for.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! unsafe_intrinsics {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? => $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, $($arg: $type),*) $(-> $result)? {
            safe!($body)
        }
    )*};
}

pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16;
pub(crate) mod blocks;
mod bytes;
pub(crate) mod dot;
pub(crate) mod math;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
mod portable;
pub(crate) mod tile;
pub(crate) mod unit;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::{Avx512, Avx512Pairs};
#[cfg(target_arch = "aarch64")]
use neon::Neon;
use portable::Portable;

/// The widest vector of any instruction set, in `f32` lanes.
pub(crate) const MAX_LANES: usize = 16;

/// Vectors of one instruction set. A value of an implementing type proves that the processor
/// has the instructions.
pub(crate) trait Simd: Copy {
    /// `LANES` values of `f32`.
    type F: Copy;
    /// `LANES / 2` values of `f64`.
    type D: Copy;
    /// Lanes of `F`.
    const LANES: usize;
    /// Rows of a register tile of `2 * LANES` columns.
    const TILE_ROWS: usize;
    /// True if pairs of `bf16` are multiplied by one instruction.
    const PAIRS: bool = false;
    /// Words ahead at which a single row prefetches the panel that it reads. `None`: it prefetches the
    /// next panel, as several rows do.
    const NEAR: Option<usize> = None;

    fn splat(self, x: f32) -> Self::F;
    /// Prefetches the cache line at `p`, which may be any address.
    #[inline(always)]
    fn prefetch(self, _p: *const u32) {}
    /// As [`Self::prefetch`], for memory that is read once.
    #[inline(always)]
    fn prefetch_once(self, p: *const u32) {
        self.prefetch(p);
    }
    /// Prefetches the cache line at `p`, which may be any address, for writing.
    #[inline(always)]
    fn prefetch_to_write(self, _p: *const u32) {}
    /// # Safety
    /// `LANES` values from `p` on are readable.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` values from `p` on are writable.
    unsafe fn store(self, p: *mut f32, x: Self::F);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, fused if the instruction set supports it.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Adds the number `index` of `row` times two vectors to two sums. An implementation keeps the order
    /// of calls where a tile needs every register.
    ///
    /// # Safety
    /// The number is readable.
    #[inline(always)]
    unsafe fn add_products(
        self,
        row: *const f32,
        index: usize,
        columns: [Self::F; 2],
        sums: &mut [Self::F; 2],
    ) {
        // SAFETY: the caller's promise.
        let x = self.splat(unsafe { *row.add(index) });
        sums[0] = self.fma(x, columns[0], sums[0]);
        sums[1] = self.fma(x, columns[1], sums[1]);
    }
    /// Sum of the lanes, always in the same order.
    fn sum(self, x: Self::F) -> f32;
    /// The largest lane.
    fn largest(self, x: Self::F) -> f32;
    /// `2^n` where `biased` is `n + 1.5 * 2^23`, `n` a whole number in `-126..=127`.
    fn exp2_biased(self, biased: Self::F) -> Self::F;
    /// Reads `LANES` pairs of `bf16` and widens the upper or the lower number of each.
    ///
    /// # Safety
    /// `LANES` words from `p` on are readable.
    unsafe fn load_bf16(self, p: *const u32, upper: bool) -> Self::F;
    /// Reads `LANES` adjacent `bf16` and widens them.
    ///
    /// # Safety
    /// `LANES` halves from `p` on are readable.
    #[inline(always)]
    unsafe fn load_halves(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise; the lanes after the first `LANES` are not read.
        unsafe { self.widen(|i| f32::from_bits(u32::from(p.add(i).read()) << 16)) }
    }
    /// Reads `LANES` adjacent finite numbers of 16 bits (IEEE 754) and widens them.
    ///
    /// # Safety
    /// `LANES` halves from `p` on are readable.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    /// Reads `LANES` adjacent signed bytes and converts them.
    ///
    /// # Safety
    /// `LANES` bytes from `p` on are readable.
    #[inline(always)]
    unsafe fn load_bytes(self, p: *const i8) -> Self::F {
        // SAFETY: as above.
        unsafe { self.widen(|i| f32::from(p.add(i).read())) }
    }
    /// Reads `LANES` adjacent `bf16` from two places and pairs them: each lane holds the bits of two, the
    /// first in the lower half. Only if [`Self::PAIRS`].
    ///
    /// # Safety
    /// `LANES` halves from both places on are readable.
    #[inline(always)]
    unsafe fn zip_halves(self, _low: *const u16, _high: *const u16) -> Self::F {
        self.splat(0.0)
    }
    /// The same of signed bytes as `bf16`, which holds every byte. Only if [`Self::PAIRS`].
    ///
    /// # Safety
    /// `LANES` bytes from both places on are readable.
    #[inline(always)]
    unsafe fn zip_bytes(self, _low: *const i8, _high: *const i8) -> Self::F {
        self.splat(0.0)
    }
    /// Adds the products of both numbers in `word` with those in each lane of `pairs` to `sum`, in an
    /// order and with roundings of its own; denormal numbers are zero. Only if [`Self::PAIRS`].
    #[inline(always)]
    fn multiply_pairs(self, _word: u32, _pairs: Self::F, sum: Self::F) -> Self::F {
        sum
    }
    /// Rounds numbers to `bf16` (to nearest even, denormal ones to zero) and pairs them: each lane holds the bits of
    /// two, those of `low` in the lower half. Only if [`Self::PAIRS`].
    #[inline(always)]
    fn pair(self, _low: Self::F, _high: Self::F) -> Self::F {
        self.splat(0.0)
    }
    /// The vector of `number(0..LANES)`.
    #[inline(always)]
    fn widen(self, number: impl Fn(usize) -> f32) -> Self::F {
        let mut lanes = [0.0; MAX_LANES];
        for (i, lane) in lanes[..Self::LANES].iter_mut().enumerate() {
            *lane = number(i);
        }
        // SAFETY: LANES <= MAX_LANES.
        unsafe { self.load(lanes.as_ptr()) }
    }

    fn splat_d(self, x: f64) -> Self::D;
    /// Reads `LANES / 2` values of `f32` and widens them.
    ///
    /// # Safety
    /// `LANES / 2` values from `p` on are readable.
    unsafe fn load_widen(self, p: *const f32) -> Self::D;
    /// # Safety
    /// `LANES / 2` values from `p` on are writable.
    unsafe fn store_d(self, p: *mut f64, x: Self::D);
    fn add_d(self, a: Self::D, b: Self::D) -> Self::D;
    fn sub_d(self, a: Self::D, b: Self::D) -> Self::D;
    fn mul_d(self, a: Self::D, b: Self::D) -> Self::D;
    fn max_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// `a * b + c`, fused if the instruction set supports it.
    fn fma_d(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;
    /// `2^n` where `biased` is `n + 1.5 * 2^52`, `n` a whole number in `-1022..=1023`.
    fn exp2_biased_d(self, biased: Self::D) -> Self::D;
}

/// A computation compiled once per instruction set.
pub(crate) trait Kernel {
    /// The result.
    type Output;
    /// Runs the kernel; must be `#[inline(always)]` so that the caller's instruction set applies.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// A supported instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// AVX-512 F and DQ.
    Avx512,
    /// AVX2, FMA and F16C.
    Avx2,
    /// NEON.
    Neon,
    /// The target's baseline instructions.
    Portable,
}

impl InstructionSet {
    /// The widest instruction set of this processor.
    pub fn detect() -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|set| set.is_supported()).unwrap_or(Self::Portable)
    }

    /// The instruction sets of this processor, widest first.
    pub fn available() -> Vec<Self> {
        let all = Self::ALL.into_iter();
        all.filter(|set| set.is_supported()).collect()
    }

    /// Widest first.
    const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Neon, Self::Portable];

    fn is_supported(self) -> bool {
        match self {
            Self::Avx512 => is_avx512(),
            Self::Avx2 => is_avx2(),
            Self::Neon => is_neon(),
            Self::Portable => true,
        }
    }

    /// The name in logs and benchmark labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Neon => "neon",
            Self::Portable => "portable",
        }
    }

    /// Columns of a packed weight panel: two vectors.
    pub(crate) fn panel(self) -> usize {
        match self {
            Self::Avx512 => 32,
            Self::Avx2 | Self::Neon | Self::Portable => 16,
        }
    }
}

/// True if this processor supports [`InstructionSet::Avx512`].
fn is_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// True if the processor has the extension VNNI of AVX-512.
fn has_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_avx512()
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// True if the processor has the extension `dotprod` of NEON.
fn has_dotprod() -> bool {
    #[cfg(target_arch = "aarch64")]
    return is_neon() && std::arch::is_aarch64_feature_detected!("dotprod");
    #[cfg(not(target_arch = "aarch64"))]
    false
}

/// True if the processor has the extensions `dotprod` and `i8mm` of NEON.
fn has_i8mm() -> bool {
    #[cfg(target_arch = "aarch64")]
    return has_dotprod() && std::arch::is_aarch64_feature_detected!("i8mm");
    #[cfg(not(target_arch = "aarch64"))]
    false
}

/// True if this processor supports [`InstructionSet::Avx2`].
fn is_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// True if this processor supports [`InstructionSet::Neon`].
fn is_neon() -> bool {
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("neon");
    #[cfg(not(target_arch = "aarch64"))]
    false
}

/// Runs `kernel` with the widest instruction set.
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    dispatch_on(InstructionSet::detect(), kernel)
}

/// Runs `kernel` with `set`, or with the portable code if the processor does not support it.
pub(crate) fn dispatch_on<K: Kernel>(set: InstructionSet, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        let widest = InstructionSet::detect();
        if set == InstructionSet::Avx512 && widest == set {
            // SAFETY: the processor has AVX-512 F and DQ.
            return unsafe { run_avx512(kernel) };
        }
        if set == InstructionSet::Avx2 && widest != InstructionSet::Portable {
            // SAFETY: the processor has AVX2, FMA and F16C (every AVX-512 one does).
            return unsafe { run_avx2(kernel) };
        }
    }
    #[cfg(target_arch = "aarch64")]
    if set == InstructionSet::Neon && is_neon() {
        // SAFETY: the processor has NEON.
        return unsafe { run_neon(kernel) };
    }
    debug_assert_eq!(
        set,
        InstructionSet::Portable,
        "the processor does not support this instruction set"
    );
    kernel.run(Portable)
}

/// As [`dispatch`], with [`Simd::PAIRS`] if the processor has them.
pub(crate) fn dispatch_pairs<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if unit::has_bf16() {
        // SAFETY: the processor has AVX-512 F, BW, DQ and BF16.
        return unsafe { run_avx512_pairs(kernel) };
    }
    dispatch(kernel)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16,avx2,fma")]
fn run_avx512_pairs<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512Pairs::here())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512::here())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2::here())
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn run_neon<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon::here())
}
