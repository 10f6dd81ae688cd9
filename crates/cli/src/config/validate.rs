//! Checks of ranges and combinations; types are already checked.

use engine::decoding::{Decoders, WeightKind};
use model::KvDtype;
use step::{Attention, Readout};

use crate::device::{BackendChoice, DeviceChoice};

use super::schema::Config;
use super::values::{
    dtype, edits, expert_sharing, kv_dtype, kv_memory, log_filter, log_format, reasoning_parser,
    share, tool_parser, unknown_fields,
};

/// Most positions of a block that a request may name.
const MOST_BLOCK: u32 = 1024;

impl Config {
    /// Every problem: its key, and what was expected and found.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = self.zeroes();
        let engine = &self.engine;
        if engine.long_quantum > engine.row_budget {
            problems.push((
                "engine.long_quantum",
                format!(
                    "expected at most engine.row_budget ({}), found {}",
                    engine.row_budget, engine.long_quantum
                ),
            ));
        }
        let (in_flight, body) = (self.server.max_bytes_in_flight, self.server.max_body_bytes);
        if in_flight / 4 < body {
            problems.push((
                "server.max_bytes_in_flight",
                format!(
                    "expected at least 4 times server.max_body_bytes ({body}), found {in_flight}"
                ),
            ));
        }
        if engine.step_timeout > 0 && engine.stall_after > engine.step_timeout {
            problems.push((
                "engine.stall_after",
                format!(
                    "expected at most engine.step_timeout ({}), found {}",
                    engine.step_timeout, engine.stall_after
                ),
            ));
        }
        problems.extend(self.wrong_texts());
        problems
    }

    /// Texts that name nothing.
    fn wrong_texts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let engine = &self.engine;
        let (device, backend) = (&self.model.device, &self.model.backend);
        let both = (device.as_str(), backend.as_str()) == ("cuda", BackendChoice::Candle.name());
        let both = both.then(|| "expected cpu with model.device cuda, found \"candle\"".to_owned());
        let texts = [
            ("model.backend", both),
            ("engine.kv_memory", kv_memory(&engine.kv_memory).err()),
            ("engine.kv_dtype", self.wrong_kv_dtype()),
            ("engine.device_memory", share(engine.device_memory).err()),
            ("model.dtype", dtype(&self.model.dtype).err()),
            (
                "model.device",
                DeviceChoice::named(&self.model.device).err(),
            ),
            (
                "model.backend",
                BackendChoice::named(&self.model.backend).err(),
            ),
            (
                "model.expert_sharing",
                expert_sharing(&self.model.expert_sharing).err(),
            ),
            (
                "server.unknown_fields",
                unknown_fields(&self.server.unknown_fields).err(),
            ),
            ("model.decoder", self.wrong_decoder()),
            ("model.edits", edits(&self.model.edits).err()),
            ("model.prompt_blocks", self.long_blocks()),
            (
                "model.tool_parser",
                tool_parser(&self.model.tool_parser).err(),
            ),
            (
                "model.reasoning_parser",
                reasoning_parser(&self.model.reasoning_parser).err(),
            ),
            ("telemetry.log", log_filter(&self.telemetry.log).err()),
            (
                "telemetry.log_format",
                log_format(&self.telemetry.log_format).err(),
            ),
        ];
        let texts = texts.into_iter();
        texts.filter_map(|(key, what)| Some((key, what?)))
    }

    /// A number format of keys and values that does not exist, or that the configured backend does not
    /// have.
    fn wrong_kv_dtype(&self) -> Option<String> {
        let named = match kv_dtype(&self.engine.kv_dtype) {
            Err(problem) => return Some(problem),
            Ok(named) => named?,
        };
        let is_candle = self.model.backend == BackendChoice::Candle.name();
        (is_candle && named != KvDtype::F32).then(|| {
            format!(
                "expected auto or f32 with model.backend candle, found {:?}",
                named.name()
            )
        })
    }

    /// Counts that must not be 0.
    fn zeroes(&self) -> Vec<(&'static str, String)> {
        let counts = [
            ("engine.row_budget", u64::from(self.engine.row_budget)),
            ("engine.max_running", u64::from(self.engine.max_running)),
            ("engine.max_waiting", u64::from(self.engine.max_waiting)),
            ("engine.page_size", u64::from(self.engine.page_size)),
            ("server.max_connections", self.server.max_connections as u64),
            ("server.max_body_bytes", self.server.max_body_bytes as u64),
            ("server.max_sequences", u64::from(self.server.max_sequences)),
            ("server.max_request_tokens", self.server.max_request_tokens),
        ];
        let zeroes = counts.iter().filter(|(_, count)| *count == 0);
        zeroes
            .map(|(key, _)| (*key, "expected at least 1, found 0".to_owned()))
            .collect()
    }

    /// Blocks longer than a request may name.
    fn long_blocks(&self) -> Option<String> {
        let length = self.model.prompt_blocks;
        (length > MOST_BLOCK).then(|| format!("expected at most {MOST_BLOCK}, found {length}"))
    }

    /// Why the default decoder works with no kind of weights. A setting may need one kind, and the
    /// weights are not loaded yet.
    fn wrong_decoder(&self) -> Option<String> {
        let kinds = [
            Attention::Full,
            Attention::Causal,
            Attention::Blocks(32),
            Attention::BlocksAfterPrompt(32),
            Attention::Canvas(256),
        ];
        let decoders = kinds.map(|attention| {
            let weights = WeightKind {
                attention,
                readout: Readout::Own,
                edits: true,
                drafts: true,
            };
            Ok::<_, anyhow::Error>(Decoders::of(weights).resolve(&self.decoding()?)?)
        });
        match decoders {
            [Err(error), Err(_), Err(_), Err(_), Err(_)] => Some(error.to_string()),
            _ => None,
        }
    }
}
