//! The configuration of an engine.

use std::sync::Arc;
use std::time::Duration;

use decode::{Filter, TokenClasses};

use crate::scheduler::WaitOrder;

/// Sizes and policies of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Most sequences of a step, `>= 1`. This number runs at once, and up to half as many more if
    /// clients share the engine.
    pub max_running: u32,
    /// Most sequences of one client that wait to start. Half as many more may wait for clients
    /// with at most an eighth of them.
    pub max_waiting: u32,
    /// Most rows of a step, `>= 1`. A single forward may exceed it.
    pub row_budget: u32,
    /// Rows of a step that prefills and refreshes take on average while other sequences decode,
    /// `>= 1`. A longer forward saves up over several steps. At or above the longest forward
    /// nothing is held back.
    pub long_quantum: u32,
    /// Most rows of a prefill under causal and block-causal attention; a longer prompt is forwarded in
    /// chunks over several steps, with the same result. The last chunk has a whole window or block of
    /// the generation, and each one has a block of the weights at least. 0 = no prefill is split.
    /// No effect under full attention, where every token of a prompt sees all others, and on canvas
    /// models.
    pub prefill_chunk: u32,
    /// True if a sequence leaves the K/V of its sealed pages to sequences that begin with the same
    /// tokens. No effect under full attention, where K/V depend on later tokens.
    pub prefix_cache: bool,
    /// Longest time that a grammar may work on one step of a sequence. A sequence whose grammar takes
    /// longer is refused, and the thread that works on it is replaced. Zero = no limit. Never has an
    /// effect on a text.
    pub grammar_timeout: Duration,
    /// Most positions of a sequence; `None` = the model's own limit.
    pub max_model_len: Option<u32>,
    /// The order in which waiting sequences start: [`ByPriority`](crate::ByPriority) or another.
    pub wait_order: Arc<dyn WaitOrder>,
    /// Delimiter classes of the vocabulary.
    pub classes: Arc<TokenClasses>,
    /// The model's capabilities beyond a forward pass.
    pub capabilities: Capabilities,
}

/// Optional model capabilities that some commit rules require.
#[derive(Clone, Debug, Default)]
pub struct Capabilities {
    /// The network of `learned_filter`.
    pub filter: Option<Arc<Filter>>,
    /// The weights were trained to rewrite committed tokens (`edit`).
    pub edits: bool,
    /// A draft model runs beside the model (`speculative`).
    pub drafts: bool,
    /// The model's open blocks only draft: a drafter behind its layers reads them (`self_speculation`).
    pub block_drafts: bool,
    /// Causal weights that predict the next token read masks too (`introspective`).
    pub masks: bool,
}
