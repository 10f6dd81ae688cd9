//! The tile unit of x86-64 processors under Linux, by inline assembly.

use super::{ROWS, TileUnit, WORDS};
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _MM_HINT_ET0, _MM_HINT_T1, _mm_prefetch};

/// Bits of `EDX` of leaf 7: `bf16`, the tiles themselves, bytes.
const FEATURES: u32 = 1 << 22 | 1 << 24 | 1 << 25;
/// `ARCH_REQ_XCOMP_PERM` of `arch_prctl`.
const REQUEST: libc::c_long = 0x1023;
/// The number of the tiles' data among the states that a processor saves.
const TILE_DATA: libc::c_long = 18;
/// The first register that holds columns, and the first that holds rows.
const COLUMNS: std::ops::Range<usize> = 4..6;
const REGISTERS: usize = 8;

/// True if the processor lists the unit.
pub(super) fn is_listed() -> bool {
    // Every processor with the unit has AVX-512; the epilogues rely on it.
    crate::simd::is_avx512()
        && __cpuid(0).eax >= 7
        && __cpuid_count(7, 0).edx & FEATURES == FEATURES
}

/// Asks the system for the permission of this process.
pub(super) fn request() -> bool {
    // SAFETY: the call takes two numbers and changes nothing but the permission.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
}

/// The unit, configured on this thread until it is dropped.
///
/// The compiler never uses tile registers, so they keep their values between two pieces of assembly.
pub(super) struct Processor(());

/// The structure that `ldtilecfg` reads.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row of each register.
    bytes: [u16; 16],
    /// Rows of each register.
    rows: [u8; 16],
}

impl Processor {
    /// Configures the registers of this thread. The registers of sums and rows have `rows` rows.
    ///
    /// # Safety
    /// The process has the permission.
    pub(super) unsafe fn configure(rows: usize) -> Self {
        let mut configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes: [0; 16],
            rows: [0; 16],
        };
        for register in 0..REGISTERS {
            let rows = if COLUMNS.contains(&register) { WORDS } else { rows.min(ROWS) };
            configuration.bytes[register] = (WORDS * size_of::<u32>()) as u16;
            configuration.rows[register] = rows as u8;
        }
        // SAFETY: the configuration is 64 bytes long and valid.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, preserves_flags));
        }
        Self(())
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // SAFETY: the registers were configured. Without it the system would save them at every
        // switch of threads.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

impl TileUnit for Processor {
    #[inline(always)]
    fn zero<const T: u8>(&mut self) {
        // SAFETY: the registers are configured.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, nomem, preserves_flags)) };
    }

    #[inline(always)]
    unsafe fn load<const T: u8>(&mut self, source: *const u32, stride: usize) {
        // SAFETY: the registers are configured; the memory is the caller's promise.
        unsafe {
            asm!(
                "tileloadd tmm{t}, [{source} + {bytes} * 1]",
                t = const T,
                source = in(reg) source,
                bytes = in(reg) stride * size_of::<u32>(),
                options(nostack, readonly, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn store<const T: u8>(&mut self, destination: *mut u32, stride: usize) {
        // SAFETY: the registers are configured; the memory is the caller's promise.
        unsafe {
            asm!(
                "tilestored [{destination} + {bytes} * 1], tmm{t}",
                t = const T,
                destination = in(reg) destination,
                bytes = in(reg) stride * size_of::<u32>(),
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn multiply_bf16<const C: u8, const A: u8, const B: u8>(&mut self) {
        // SAFETY: the registers are configured.
        unsafe {
            asm!(
                "tdpbf16ps tmm{c}, tmm{a}, tmm{b}",
                c = const C,
                a = const A,
                b = const B,
                options(nostack, nomem, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn multiply_bytes<const C: u8, const A: u8, const B: u8>(&mut self) {
        // SAFETY: the registers are configured.
        unsafe {
            asm!(
                "tdpbusd tmm{c}, tmm{a}, tmm{b}",
                c = const C,
                a = const A,
                b = const B,
                options(nostack, nomem, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn prefetch(&self, p: *const u32) {
        // SAFETY: a prefetch of any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) };
    }

    #[inline(always)]
    fn prefetch_to_write(&self, p: *const u32) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(p.cast()) };
    }
}
