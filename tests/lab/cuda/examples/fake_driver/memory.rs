//! Memory of the device, and pinned memory of the host.

use crate::plan::log;
use crate::{Code, INVALID_VALUE};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, VecDeque};

/// Alignment of allocations, and bytes of the guards before and after each.
const GUARD: usize = 256;
/// The content of guards.
const GUARDED: u8 = 0xC3;
/// The content of new and of freed memory: not a number, and no valid index.
const POISON: u8 = 0xFF;
/// Freed allocations whose memory is not used again.
const KEPT: usize = 512;

/// Allocations of one kind.
#[derive(Debug)]
pub struct Memory {
    kind: &'static str,
    live: BTreeMap<u64, usize>,
    freed: VecDeque<(u64, usize)>,
    pub used: u64,
}

fn layout(bytes: usize) -> Option<Layout> {
    let all = bytes.checked_add(2 * GUARD)?;
    Layout::from_size_align(all, GUARD).ok()
}

impl Memory {
    pub const fn new(kind: &'static str) -> Self {
        Self { kind, live: BTreeMap::new(), freed: VecDeque::new(), used: 0 }
    }

    /// Poisoned memory between guards.
    pub fn allocate(&mut self, bytes: usize) -> Option<u64> {
        let layout = layout(bytes)?;
        // SAFETY: the layout has a size; guards and content lie in it.
        let address = unsafe {
            let start = alloc(layout);
            if start.is_null() {
                return None;
            }
            start.write_bytes(GUARDED, layout.size());
            let address = start.add(GUARD);
            address.write_bytes(POISON, bytes);
            address as u64
        };
        self.live.insert(address, bytes);
        self.used += bytes as u64;
        Some(address)
    }

    /// Checks the guards and keeps the memory from being used again for a while.
    pub fn free(&mut self, address: u64) -> Result<(), Code> {
        let Some(bytes) = self.live.remove(&address) else {
            log(&format!("misuse: {address:#x} is freed, which is no {}", self.kind));
            return Err(INVALID_VALUE);
        };
        self.used -= bytes as u64;
        // SAFETY: allocated with this length and guards, not freed yet.
        let intact = unsafe {
            let start = (address as *mut u8).sub(GUARD);
            let all = std::slice::from_raw_parts(start, bytes + 2 * GUARD);
            let guards = all[..GUARD].iter().chain(&all[GUARD + bytes..]);
            let intact = guards.copied().all(|byte| byte == GUARDED);
            (address as *mut u8).write_bytes(POISON, bytes);
            intact
        };
        if !intact {
            log(&format!("misuse: bytes beside {bytes} bytes of {} were written", self.kind));
        }
        self.freed.push_back((address, bytes));
        if self.freed.len() > KEPT
            && let Some((address, bytes)) = self.freed.pop_front()
            && let Some(layout) = layout(bytes)
        {
            // SAFETY: allocated with this layout; nothing refers to it any more.
            unsafe { dealloc((address as *mut u8).sub(GUARD), layout) };
        }
        Ok(())
    }

    /// True if a range lies in one allocation.
    pub fn holds(&self, address: u64, bytes: usize) -> bool {
        let before = self.live.range(..=address).next_back();
        before.is_some_and(|(start, have)| address - start + bytes as u64 <= *have as u64)
    }

    /// True if an address lies in freed memory.
    pub fn was_freed(&self, address: u64) -> bool {
        let inside =
            |(start, bytes): &(u64, usize)| (*start..start + *bytes as u64).contains(&address);
        self.freed.iter().any(inside)
    }

    /// Forgets what is left, and tells how much that is.
    pub fn clear(&mut self) {
        if !self.live.is_empty() {
            let (count, used) = (self.live.len(), self.used);
            log(&format!("leak: {count} times {}, {used} bytes", self.kind));
        }
        self.live.clear();
        self.used = 0;
    }
}
