//! The choices of rows among experts that a device which computes nothing supposes: every row chooses at
//! random.

use super::Memory;
use crate::layout::NONE;
use kernels::device::args;
use std::collections::BTreeSet;

/// The next number of a splitmix64 generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut x = *state;
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

impl Memory {
    /// Writes what `choose_experts` would: the experts of `rows` rows, in ascending order.
    pub(super) fn choose(&mut self, a: &args::Choose, rows: usize) {
        let Some(slots) = self.words(a.slots, rows) else { return };
        let (count, chosen) = (u64::from(a.count.max(1)), a.chosen.min(a.count) as usize);
        let mut all = Vec::with_capacity(rows * chosen);
        for slot in slots {
            if slot == NONE {
                all.extend(std::iter::repeat_n(NONE, chosen));
                continue;
            }
            let mut own = BTreeSet::new();
            while own.len() < chosen {
                own.insert((random(&mut self.choices) % count) as u32);
            }
            all.extend(own);
        }
        self.write(a.experts, &all);
    }

    /// Writes what `group_rows` would: pairs of rows and experts by expert, and the tiles of every expert.
    pub(super) fn group(&mut self, a: &args::Group) {
        let Some(experts) = self.words(a.experts, a.pairs as usize) else { return };
        let (mut counts, mut pairs_at, mut tiles) = (Vec::new(), Vec::new(), Vec::new());
        let mut places = vec![0; experts.len()];
        for expert in 0..a.count {
            let first = pairs_at.len();
            for (pair, _) in (0..).zip(&experts).filter(|(_, chosen)| **chosen == expert) {
                places[pair as usize] = pairs_at.len() as u32;
                pairs_at.push(pair);
            }
            let own = pairs_at.len() - first;
            counts.push(own as u32);
            for done in (0..own).step_by(a.tile as usize) {
                let rows = (own - done).min(a.tile as usize);
                tiles.extend([expert, (first + done) as u32, rows as u32]);
            }
        }
        pairs_at.resize(experts.len(), NONE);
        tiles.resize(3 * a.tile_count as usize, 0);
        for (address, words) in
            [(a.counts, &counts), (a.pairs_at, &pairs_at), (a.places, &places), (a.tiles, &tiles)]
        {
            self.write(address, words);
        }
    }

    fn write(&mut self, address: u64, words: &[u32]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.contents.insert(address, bytes);
    }
}
