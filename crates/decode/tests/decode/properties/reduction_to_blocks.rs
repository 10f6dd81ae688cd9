//! Property 12, the part that `decode` decides: one lane without forks is block-wise decoding.

use asynclane_decode::{DecoderConfig, DoneReason, Effect};
use proptest::prelude::*;

use crate::common::{Record, Setup, Walk, asynclane_setup, block_wise_setup, cases};

proptest! {
    #![proptest_config(cases())]

    /// AsyncLane §7 without caches: forking off, lookahead 0 and no drafts commit exactly what
    /// BlockWise with the same block length commits, step for step, to the first stop token.
    #[test]
    fn without_forks_asynclane_is_block_wise(
        setup in block_wise_setup(),
        other in asynclane_setup(),
    ) {
        let mut setup = setup;
        setup.config.early_stop = true;
        // A rule that goes with both.
        setup.config.commit = other.config.commit.clone();
        let reduced = Setup { config: reduced(&setup.config, &other), ..setup.clone() };
        let (blocks, lanes) = (Walk::run(&setup), Walk::run(&reduced));
        let ended = lanes.effects().last();
        if ended == Some(&Effect::Done { reason: DoneReason::LaneBudget }) {
            // On a cut canvas a lane may run out of steps; a block never does. The comparison ends there.
            prop_assert!(blocks.output().starts_with(&lanes.output()));
        } else {
            prop_assert_eq!(lanes.output(), blocks.output());
            prop_assert_eq!(lanes.steps.len(), blocks.steps.len());
        }
        for (lane, block) in lanes.steps.iter().zip(&blocks.steps) {
            prop_assert_eq!(&lane.proposals, &block.proposals, "the same positions are asked for");
            prop_assert!(without_lanes(lane).eq(without_lanes(block)));
        }
    }
}

/// The block length of one configuration, all else of AsyncLane from the other.
fn reduced(config: &DecoderConfig, other: &Setup) -> DecoderConfig {
    let length = config.schedule.settings().get("block_length");
    let length = length.and_then(|length| length.as_count());
    let schedule = other.config.schedule.clone();
    DecoderConfig {
        schedule: schedule
            .with("block_length", length.expect("the setup is block-wise"))
            .with("lookahead", 0u32)
            .with("draft_threshold", 2.0)
            .with("fork", "off"),
        ..config.clone()
    }
}

/// Commits, cuts and advances: everything but the bookkeeping of lanes and the end.
fn without_lanes(record: &Record) -> impl Iterator<Item = &Effect> {
    record.effects.iter().filter(|effect| {
        matches!(effect, Effect::Commit(_) | Effect::Shorten { .. } | Effect::Advance(_))
    })
}
