//! The JSON shapes of answers and chunks.

use engine::FinishReason;
use serde::{Serialize, Serializer};
use step::TokenId;

use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Answer;
use crate::pipeline::logprobs::{Logprobs, Scored};
use crate::pipeline::usage::Usage;
use crate::request::Endpoint;

/// A whole answer.
#[derive(Debug, Serialize)]
pub struct Whole<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<WholeChoice<'a>>,
    usage: Usage,
}

#[derive(Debug, Serialize)]
struct WholeChoice<'a> {
    index: usize,
    #[serde(flatten)]
    content: Content<'a>,
    logprobs: Option<Logprobs<'a>>,
    #[serde(serialize_with = "reason")]
    finish_reason: Option<FinishReason>,
    #[serde(flatten)]
    ids: Ids<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Content<'a> {
    Text(&'a str),
    Message(Message<'a>),
    Delta(Part<'a>),
}

#[derive(Debug, Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Debug, Default, Serialize)]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

#[derive(Debug, Default, Serialize)]
struct Ids<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [TokenId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [TokenId]>,
}

impl<'a> Whole<'a> {
    /// The answer with `choices`, each the join of its deltas.
    pub fn new(answer: &'a Answer, choices: &'a [Delta], usage: Usage) -> Self {
        let choice = |delta: &'a Delta| WholeChoice {
            index: delta.index,
            content: match answer.endpoint {
                Endpoint::Completions => Content::Text(&delta.text),
                Endpoint::Chat => Content::Message(Message {
                    role: "assistant",
                    content: &delta.text,
                }),
            },
            logprobs: logprobs(answer, &delta.scored),
            finish_reason: delta.finish,
            ids: if answer.output.return_token_ids {
                Ids {
                    token_ids: Some(&delta.token_ids),
                    prompt_token_ids: Some(answer.prompt_ids(delta.index)),
                }
            } else {
                Ids::default()
            },
        };
        let object = match answer.endpoint {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion",
        };
        Self {
            id: &answer.id,
            object,
            created: answer.created,
            model: &answer.model,
            system_fingerprint: &answer.fingerprint,
            choices: choices.iter().map(choice).collect(),
            usage,
        }
    }
}

/// `usage` of a chunk.
#[derive(Debug, Clone)]
pub enum ChunkUsage {
    /// The key is absent.
    Absent,
    /// The key is there, without a value.
    Null,
    /// Totals.
    Totals(Usage),
}

impl ChunkUsage {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl Serialize for ChunkUsage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Null => serializer.serialize_none(),
            Self::Totals(usage) => usage.serialize(serializer),
        }
    }
}

/// One chunk of a streamed answer.
#[derive(Debug, Serialize)]
pub struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<WholeChoice<'a>>,
    #[serde(skip_serializing_if = "ChunkUsage::is_absent")]
    usage: ChunkUsage,
}

/// What a chunk of one choice says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChunkKind<'a> {
    /// Chat only: who speaks. The first chunk of its choice.
    Role,
    /// Text with its ids.
    Text(&'a str),
    /// Why the choice ended. The last chunk of its choice.
    Finish(FinishReason),
}

/// What rides on a chunk, as far as the request asked for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rides<'a> {
    /// The ids of its text; left out where there are none.
    pub token_ids: Option<&'a [TokenId]>,
    /// The probabilities of the same tokens; null where there are none.
    pub scored: &'a [Scored],
    /// Whether the prompt's ids are with it.
    pub prompt: bool,
}

impl<'a> Chunk<'a> {
    /// A chunk of choice `index` with what `rides` on it.
    pub fn new(
        answer: &'a Answer,
        index: usize,
        kind: ChunkKind<'a>,
        rides: Rides<'a>,
        usage: ChunkUsage,
    ) -> Self {
        let (text, finish_reason) = match kind {
            ChunkKind::Role => ("", None),
            ChunkKind::Text(text) => (text, None),
            ChunkKind::Finish(reason) => ("", Some(reason)),
        };
        let content = match (answer.endpoint, kind) {
            (Endpoint::Completions, _) => Content::Text(text),
            (Endpoint::Chat, ChunkKind::Role) => Content::Delta(Part {
                role: Some("assistant"),
                content: Some(""),
            }),
            (Endpoint::Chat, ChunkKind::Text(text)) => Content::Delta(Part {
                role: None,
                content: Some(text),
            }),
            (Endpoint::Chat, ChunkKind::Finish(_)) => Content::Delta(Part::default()),
        };
        let prompt_token_ids = rides.prompt.then(|| answer.prompt_ids(index));
        let ids = if answer.output.return_token_ids {
            Ids {
                token_ids: rides.token_ids,
                prompt_token_ids,
            }
        } else {
            Ids::default()
        };
        let choice = WholeChoice {
            index,
            content,
            logprobs: logprobs(answer, rides.scored).filter(|_| !rides.scored.is_empty()),
            finish_reason,
            ids,
        };
        Self::around(answer, vec![choice], usage)
    }

    /// The last chunk before the end mark: no choice, the final usage.
    pub fn last(answer: &'a Answer, usage: Usage) -> Self {
        Self::around(answer, Vec::new(), ChunkUsage::Totals(usage))
    }

    fn around(answer: &'a Answer, choices: Vec<WholeChoice<'a>>, usage: ChunkUsage) -> Self {
        let object = match answer.endpoint {
            Endpoint::Completions => "text_completion",
            Endpoint::Chat => "chat.completion.chunk",
        };
        let (id, model) = (answer.id.as_str(), answer.model.as_str());
        Self {
            id,
            object,
            created: answer.created,
            model,
            choices,
            usage,
        }
    }
}

/// The probabilities of `scored`, if the request asked for them.
fn logprobs<'a>(answer: &'a Answer, scored: &'a [Scored]) -> Option<Logprobs<'a>> {
    answer.output.logprobs.map(|_| Logprobs {
        scored,
        tokenizer: &answer.tokenizer,
        endpoint: answer.endpoint,
    })
}

fn reason<S: Serializer>(reason: &Option<FinishReason>, serializer: S) -> Result<S::Ok, S::Error> {
    reason.map(crate::record::reason_name).serialize(serializer)
}
