//! The decoder of sequences that are read and not generated ([`crate::Labels`]).

use decode::Value;
use step::Attention;

use super::resolved::Decoding;
use super::spec::DecodingSpec;
use super::weights::WeightKind;

impl WeightKind {
    /// A decoder whose first forward scores every open one of the first `positions` offsets, and nothing
    /// else: one lane, and candidates at temperature 1. Autoregressive and causal weights read one
    /// offset, a canvas of noise as many as it has.
    pub fn reader(self, positions: u32) -> Decoding {
        let settings = match self.attention {
            Attention::Full => "schedule=block_wise,commit=top_k,cache=none",
            Attention::Blocks(_) | Attention::BlocksAfterPrompt(_) => {
                "schedule=block_wise,commit=top_k,cache=exact"
            }
            Attention::Causal | Attention::OpenBlock(_) => "autoregressive",
            Attention::Canvas(_) => "canvas,t_min=1,t_max=1",
        };
        let spec = DecodingSpec::parse(settings).and_then(|spec| spec.suited_to(self).resolve());
        let mut decoding = spec.expect("built-in members go together, by test");
        // Whole blocks of the model that hold the positions, wherever in a block the first one lies.
        let length = match self.attention {
            Attention::Full | Attention::BlocksAfterPrompt(_) => positions.max(1),
            Attention::Blocks(block) => {
                positions.saturating_add(block).saturating_sub(1).next_multiple_of(block.max(1))
            }
            Attention::Causal | Attention::OpenBlock(_) | Attention::Canvas(_) => return decoding,
        };
        let schedule = decoding.decoder.schedule;
        decoding.decoder.schedule =
            schedule.with("block_length", Value::Integer(i64::from(length)));
        decoding
    }

    /// Most offsets of a canvas that one forward can read; none for weights that read one.
    pub fn readable(self) -> Option<u32> {
        match self.attention {
            Attention::Full | Attention::Blocks(_) | Attention::BlocksAfterPrompt(_) => {
                Some(u32::MAX)
            }
            Attention::Canvas(length) => Some(length),
            Attention::Causal | Attention::OpenBlock(_) => None,
        }
    }
}
