//! Checks of ranges and combinations; types are already checked.

use std::net::SocketAddr;

use engine::decoding::{Decoders, WeightKind};
use model::KvDtype;
use step::{Attention, LogitShift};

use super::DEFAULT_ROWS;
use super::choice::{BackendChoice, DeviceChoice};
use super::schema::Config;

/// Maximum length in positions of a block that a request may name.
const MAX_BLOCK_LENGTH: u32 = 1024;

impl Config {
    /// Every problem: its key, and what was expected and found.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = self.zeroes();
        let engine = &self.engine;
        let row_budget = self.row_budget(DEFAULT_ROWS);
        if engine.long_quantum > row_budget {
            problems.push((
                "engine.long_quantum",
                format!(
                    "expected at most engine.row_budget ({row_budget}), found {}",
                    engine.long_quantum
                ),
            ));
        }
        let (in_flight, body) =
            (self.server.limits.max_bytes_in_flight, self.server.limits.max_body_bytes);
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

    /// Values that do not go together or are out of range.
    fn wrong_texts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let (device, backend) = (*self.model.device, *self.model.backend);
        let is_candle = backend == BackendChoice::Candle;
        let candle_on_device = (is_candle && matches!(device, DeviceChoice::Cuda(_)))
            .then(|| "expected cpu with model.device cuda, found \"candle\"".to_owned());
        let kv_dtype = self.engine.kv_dtype.filter(|dtype| is_candle && *dtype != KvDtype::F32);
        let kv_dtype = kv_dtype.map(|dtype| {
            let name = dtype.name();
            format!("expected auto or f32 with model.backend candle, found {name:?}")
        });
        let share = self.engine.device_memory;
        let is_share = share > 0.0 && share <= 1.0;
        let share = format!("expected a share above 0, at most 1, found {share}");
        let length = self.model.training.prompt_blocks;
        let blocks = (length > MAX_BLOCK_LENGTH)
            .then(|| format!("expected at most {MAX_BLOCK_LENGTH}, found {length}"));
        let texts = [
            ("server.listen", self.wrong_address()),
            ("model.backend", candle_on_device),
            ("engine.kv_dtype", kv_dtype),
            ("engine.device_memory", (!is_share).then_some(share)),
            ("model.decoder", self.wrong_decoder()),
            ("model.prompt_blocks", blocks),
        ];
        let texts = texts.into_iter();
        texts.filter_map(|(key, what)| Some((key, what?)))
    }

    /// The reason why nothing can listen on the address. Its host may be a name, which is not looked up.
    fn wrong_address(&self) -> Option<String> {
        let address = self.listen_address();
        let is_number = address.parse::<SocketAddr>().is_ok();
        let is_named = address.rsplit_once(':').is_some_and(|(host, port)| {
            let is_outside = |c: char| c.is_whitespace() || matches!(c, ':' | '/' | '[' | ']');
            !host.is_empty() && !host.contains(is_outside) && port.parse::<u16>().is_ok()
        });
        let found = &self.server.listen;
        let most = u16::MAX;
        let expected = format!("expected HOST:PORT or a port of at most {most}, found {found:?}");
        (!is_number && !is_named).then_some(expected)
    }

    /// Counts that must not be 0.
    fn zeroes(&self) -> Vec<(&'static str, String)> {
        let counts = [
            ("engine.max_running", u64::from(self.engine.max_running)),
            ("engine.max_waiting", u64::from(self.engine.max_waiting)),
            ("engine.page_size", u64::from(self.engine.page_size)),
            ("server.max_connections", self.server.limits.max_connections as u64),
            ("server.max_body_bytes", self.server.limits.max_body_bytes as u64),
            ("server.max_sequences", u64::from(self.server.limits.max_sequences)),
            ("server.max_request_tokens", self.server.limits.max_request_tokens),
        ];
        let zeroes = counts.iter().filter(|(_, count)| *count == 0);
        zeroes.map(|(key, _)| (*key, "expected at least 1, found 0".to_owned())).collect()
    }

    /// The reason why the default decoder works with no kind of weights. A setting may need one kind, and the
    /// weights are not loaded yet.
    fn wrong_decoder(&self) -> Option<String> {
        let kinds = [
            Attention::Full,
            Attention::Causal,
            Attention::Blocks(32),
            Attention::BlocksAfterPrompt(32),
            Attention::OpenBlock(32),
            Attention::Canvas(256),
        ];
        let decoders = kinds.map(|attention| {
            let weights = WeightKind {
                attention,
                logit_shift: LogitShift::None,
                edits: true,
                drafts: true,
                masks: true,
            };
            Ok::<_, anyhow::Error>(Decoders::of(weights).resolve(&self.decoding()?)?)
        });
        match decoders {
            [Err(error), Err(_), Err(_), Err(_), Err(_), Err(_)] => Some(error.to_string()),
            _ => None,
        }
    }
}
