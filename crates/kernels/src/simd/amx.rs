//! Advanced Matrix Extensions (AMX): a unit that multiplies tiles of 16 rows by 64 bytes.
//!
//! The intrinsics are not stable in Rust, so [`processor`] uses inline assembly. Tests have a model that
//! computes the same in software, bit for bit, as Intel's manual defines it. Every product is tested on
//! the model on each machine, and on the instructions where the processor has them.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod processor;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// Words of a tile's row. A word is two `bf16` or four bytes.
pub(crate) const WORDS: usize = 16;

/// Eight tile registers. The first four hold sums, one per row and column. 4 and 5 hold columns: a
/// row of the register is one word of 16 columns. 6 and 7 hold rows: 16 words of each.
pub(crate) trait TileUnit {
    /// Sets register `T` to zero.
    fn zero<const T: u8>(&mut self);
    /// Loads register `T`. Its row `i` is at `source + i * stride`, in words.
    ///
    /// # Safety
    /// 16 words of each row of the register are readable.
    unsafe fn load<const T: u8>(&mut self, source: *const u32, stride: usize);
    /// Stores register `T`, row `i` at `destination + i * stride`, in words.
    ///
    /// # Safety
    /// 16 words of each row of the register are writable.
    unsafe fn store<const T: u8>(&mut self, destination: *mut u32, stride: usize);
    /// Adds the products of rows `A` and columns `B`, pairs of `bf16`, to the `f32` sums `C`. The
    /// products of even and of odd indices are summed apart over the 16 words, then added to each
    /// other and to `C`. Denormal numbers count as zero.
    fn multiply_bf16<const C: u8, const A: u8, const B: u8>(&mut self);
    /// Adds the products of rows `A`, unsigned bytes, and columns `B`, signed bytes, to the 32-bit
    /// sums `C`.
    fn multiply_bytes<const C: u8, const A: u8, const B: u8>(&mut self);
    /// Prefetches the cache line at `p`, which may be any address, into the L2 cache.
    fn prefetch(&self, p: *const u32);
    /// Prefetches the cache line at `p`, which may be any address, for writing.
    fn prefetch_to_write(&self, p: *const u32);
}

/// The tile unit that multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiles {
    /// The processor's.
    Processor,
    /// The software model.
    #[cfg(test)]
    Model,
}

/// True if this process may use the processor's tile unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileSupport {
    /// The processor has none.
    Absent,
    /// The processor lists it, but the operating system refuses the permission.
    Refused,
    /// It can be used.
    Ready,
}

impl TileSupport {
    /// The support of this process. The first call asks the operating system for the permission,
    /// which holds for all threads.
    pub fn detect() -> Self {
        static FOUND: OnceLock<TileSupport> = OnceLock::new();
        *FOUND.get_or_init(|| {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            return Self::decide(processor::is_listed(), processor::request);
            #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
            Self::Absent
        })
    }

    /// The support of a processor that lists the unit or not, on a system that `permits` it or not.
    /// A hypervisor may list the unit and hide its state, so the list alone is not enough.
    #[cfg_attr(
        not(any(test, all(target_arch = "x86_64", target_os = "linux"))),
        expect(dead_code, reason = "only this system has a permission")
    )]
    fn decide(is_listed: bool, permits: impl FnOnce() -> bool) -> Self {
        match is_listed {
            false => Self::Absent,
            true if permits() => Self::Ready,
            true => Self::Refused,
        }
    }
}

/// A computation on a tile unit.
pub(crate) trait TileKernel {
    /// The result.
    type Output;
    /// Runs the kernel.
    fn run<U: TileUnit>(self, unit: &mut U) -> Self::Output;
}

/// Runs `kernel` with registers of sums and rows that have `rows` rows, `1..=16`.
///
/// # Panics
/// If the processor's unit is asked for and cannot be used.
pub(crate) fn dispatch_tiles<K: TileKernel>(tiles: Tiles, rows: usize, kernel: K) -> K::Output {
    assert!((1..=ROWS).contains(&rows), "a tile of {rows} rows");
    #[cfg(test)]
    if tiles == Tiles::Model {
        return kernel.run(&mut tests::Model::new(rows));
    }
    let _ = tiles;
    assert_eq!(TileSupport::detect(), TileSupport::Ready, "the tile unit cannot be used");
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    // SAFETY: this process may use the unit.
    return kernel.run(&mut unsafe { processor::Processor::configure(rows) });
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    unreachable!("no other system has the unit")
}
