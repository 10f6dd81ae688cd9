//! Named decoders: full settings that a request starts from.

use decode::Value::{self, Flag, Integer, Name, Number};
use decode::{Capability, CommitInfo};
use step::{Attention, Readout};

use super::spec::DecodingSpec;

/// A named, full setting.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, one line.
    pub summary: &'static str,
    /// Its settings.
    pub fields: &'static [(&'static str, Value<'static>)],
}

/// The preset of a request that names none, for weights with full attention.
pub const DEFAULT: &str = "balanced";

/// Names of [`PRESETS`], in order.
pub const NAMES: &[&str] = &{
    let mut names = [""; PRESETS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = PRESETS[at].name;
        at += 1;
    }
    names
};

/// The presets that are tuned for serving. Each is nearly the cheapest decoder of the measured
/// comparison whose loss against `vanilla` stays within a bound on every problem set; a test holds them
/// against the result file.
pub const TUNED: [&str; 2] = ["balanced", "fast"];

/// Former names of presets, each with the present one. Callers may use them; no list shows them.
const ALIASES: &[(&str, &str)] = &[("quality", "balanced")];

/// Every preset: [`TUNED`], then the reference points that comparisons need.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "balanced",
        summary: "AsyncLane under an entropy bound; tokens left of the masks are computed again",
        fields: &bounded(32),
    },
    Preset {
        name: "fast",
        summary: "`balanced` over older keys and values: fewer rows, more mistakes",
        fields: &bounded(0),
    },
    Preset {
        name: "asynclane",
        summary: "AsyncLane untuned: Fast-dLLM's threshold, a lookahead of one block",
        fields: &[
            ("schedule", Name("asynclane")),
            ("commit", Name("threshold")),
            ("cache", Name("fused")),
            ("rows", Name("open")),
            ("refresh", Integer(32)),
            ("threshold", Number(0.9)),
            ("draft_threshold", Number(0.9)),
            ("lookahead", Integer(32)),
            ("fork", Name("prose")),
            ("lone_stops", Flag(false)),
        ],
    },
    Preset {
        name: "asynclane_paper",
        summary: "AsyncLane with fork snapshots and a refresh at every lane start",
        fields: &[
            ("schedule", Name("asynclane")),
            ("commit", Name("threshold")),
            ("cache", Name("snapshot")),
            ("rows", Name("all")),
            ("refresh", Name("lane")),
            ("threshold", Number(0.9)),
            ("lane_budget", Flag(true)),
        ],
    },
    Preset {
        name: "vanilla",
        summary: "LLaDA's sampler: one token per forward pass over the whole canvas, which a stop token cuts",
        fields: &[
            ("schedule", Name("block_wise")),
            ("commit", Name("top_k")),
            ("cache", Name("none")),
            ("tokens_per_step", Integer(1)),
        ],
    },
    Preset {
        name: "fast_dllm",
        summary: "Fast-dLLM's threshold rule without a cache, ended at the first stop token",
        fields: &fast_dllm("none"),
    },
    Preset {
        name: "fast_dllm_prefix",
        summary: "Fast-dLLM with the prefix cache, ended at the first stop token",
        fields: &fast_dllm("prefix"),
    },
    Preset {
        name: "fast_dllm_dual",
        summary: "Fast-dLLM with the dual cache, ended at the first stop token",
        fields: &fast_dllm("dual"),
    },
    Preset {
        name: "fast_dllm_dual_published",
        summary: "Fast-dLLM with the dual cache as published: fills the whole canvas",
        fields: &[
            ("schedule", Name("block_wise")),
            ("commit", Name("threshold")),
            ("cache", Name("dual")),
            ("threshold", Number(0.9)),
            ("prune", Flag(false)),
            ("early_stop", Flag(false)),
        ],
    },
    Preset {
        name: "adablock",
        summary: "AdaBlock-dLLM: blocks that end at an expected delimiter, dual cache, ended at the first stop token",
        fields: &[
            ("schedule", Name("adaptive_block")),
            ("commit", Name("threshold")),
            ("cache", Name("dual")),
            ("threshold", Number(0.9)),
            ("delimiter_threshold", Number(0.3)),
        ],
    },
    Preset {
        name: "d3llm",
        summary: "d3LLM's multi-block decoding without training: entropy rule, dual cache, ended at the first stop token",
        fields: &[
            ("schedule", Name("multi_block")),
            ("commit", Name("entropy")),
            ("cache", Name("dual")),
            ("entropy_threshold", Number(0.45)),
            ("add_block_threshold", Number(0.1)),
        ],
    },
    Preset {
        name: "dream",
        summary: "Dream's sampler: one block, the lowest entropy first, one token per forward pass, ended at the first stop token",
        fields: &[
            ("schedule", Name("block_wise")),
            ("commit", Name("scheduled")),
            ("cache", Name("none")),
            ("block_length", Integer(1024)),
            ("rank", Name("entropy")),
        ],
    },
    Preset {
        name: "window_diffusion",
        summary: "Window-Diffusion: 16 masks may be committed and 64 are read; the whole canvas every 32 forward passes; ended at the first stop token",
        fields: &[
            ("schedule", Name("window")),
            ("commit", Name("top_k")),
            ("cache", Name("dual")),
            ("tokens_per_step", Integer(1)),
            ("block_length", Integer(16)),
            ("window", Integer(64)),
            ("refresh", Integer(31)),
        ],
    },
    Preset {
        name: "wedlm",
        summary: "WeDLM's streaming window of 16 positions, by entropy, near positions first; causal weights",
        fields: &streaming(16, 0.4),
    },
    Preset {
        name: "wedlm_exact",
        summary: "the text of `autoregressive` at temperature 0, in fewer forward passes: guesses of a window are checked from the left; causal weights",
        fields: &[
            ("schedule", Name("streaming")),
            ("commit", Name("causal_check")),
            ("cache", Name("exact")),
            ("window", Integer(32)),
        ],
    },
    Preset {
        name: "wedlm_next",
        summary: "`wedlm_exact` with the text of an ordinary language model: each guess is compared with the next token that the weights predict; causal weights trained on next tokens too, as WeDLM's are",
        fields: &[
            ("schedule", Name("streaming")),
            ("commit", Name("causal_check")),
            ("cache", Name("exact")),
            ("window", Integer(32)),
            ("check", Name("next")),
        ],
    },
    Preset {
        name: "autoregressive",
        summary: "a window of one position: causal weights as an ordinary language model",
        fields: &streaming(1, 0.0),
    },
    Preset {
        name: "speculative",
        summary: "drafts of a draft model, verified: the text is that of `autoregressive`; causal weights",
        fields: &[
            ("schedule", Name("speculative")),
            ("commit", Name("top_k")),
            ("cache", Name("exact")),
            ("tokens_per_step", Integer(1)),
        ],
    },
    Preset {
        name: "prompt_lookup",
        summary: "tokens copied from the text, verified: the text is that of `autoregressive`; causal weights",
        fields: &[
            ("schedule", Name("prompt_lookup")),
            ("commit", Name("top_k")),
            ("cache", Name("exact")),
            ("tokens_per_step", Integer(1)),
        ],
    },
    Preset {
        name: "block_causal",
        summary: "one block after the other by threshold, exact K/V; block-causal weights; blocks as long as the model's",
        fields: &[
            ("schedule", Name("block_wise")),
            ("commit", Name("threshold")),
            ("cache", Name("exact")),
            ("threshold", Number(0.95)),
            ("prune", Flag(false)),
        ],
    },
    Preset {
        name: "d2f",
        summary: "D2F: the next block opens once a tenth of the last one is filled, and commits in every step once that one is nearly full; exact K/V; block-causal weights, blocks as long as the model's",
        fields: &[
            ("schedule", Name("multi_block")),
            ("commit", Name("threshold")),
            ("cache", Name("exact")),
            ("threshold", Number(0.9)),
            ("add_block_threshold", Number(0.1)),
            ("active_block_threshold", Number(0.95)),
            ("prune", Flag(false)),
        ],
    },
    Preset {
        name: "s2d2",
        summary: "S2D2: the run of masks that a block guesses is checked from left to right by the same weights; block-causal weights; blocks as long as the model's",
        fields: &[
            ("schedule", Name("block_wise")),
            ("commit", Name("self_speculative")),
            ("cache", Name("exact")),
            ("prune", Flag(false)),
        ],
    },
    Preset {
        name: "editing",
        summary: "LLaDA2.1's quality mode: early commits that later forward passes rewrite; weights trained to edit",
        fields: &editing(0.7, 0.5),
    },
    Preset {
        name: "editing_fast",
        summary: "LLaDA2.1's speed mode: `editing` with lower thresholds",
        fields: &editing(0.5, 0.0),
    },
    Preset {
        name: "canvas",
        summary: "DiffusionGemma's sampler: canvases of noise as long as the model's; weights trained on noise",
        fields: &[
            ("schedule", Name("canvas")),
            ("commit", Name("renoise")),
            ("cache", Name("exact")),
        ],
    },
];

type Setting = (&'static str, Value<'static>);

/// AsyncLane as this server runs it: drafts only where the model is sure.
const fn bounded(left_rows: i64) -> [Setting; 10] {
    [
        ("schedule", Name("asynclane")),
        ("commit", Name("entropy_bound")),
        ("cache", Name("fused")),
        ("rows", Name("open")),
        ("refresh", Integer(32)),
        ("left_rows", Integer(left_rows)),
        ("entropy_threshold", Number(0.15)),
        ("draft_threshold", Number(0.99)),
        ("lookahead", Integer(8)),
        ("lone_stops", Flag(false)),
    ]
}

/// Fast-dLLM at the threshold of its authors.
const fn fast_dllm(cache: &'static str) -> [Setting; 4] {
    [
        ("schedule", Name("block_wise")),
        ("commit", Name("threshold")),
        ("cache", Name(cache)),
        ("threshold", Number(0.9)),
    ]
}

/// LLaDA2.1's joint threshold decoding.
const fn editing(threshold: f64, edit_threshold: f64) -> [Setting; 6] {
    [
        ("schedule", Name("block_wise")),
        ("commit", Name("edit")),
        ("cache", Name("exact")),
        ("threshold", Number(threshold)),
        ("edit_threshold", Number(edit_threshold)),
        ("prune", Flag(false)),
    ]
}

/// WeDLM's decoder at the position penalty of its authors.
const fn streaming(window: i64, entropy_threshold: f64) -> [Setting; 8] {
    [
        ("schedule", Name("streaming")),
        ("commit", Name("entropy")),
        ("cache", Name("exact")),
        ("window", Integer(window)),
        ("entropy_threshold", Number(entropy_threshold)),
        ("position_penalty", Number(0.02)),
        ("below", Flag(true)),
        ("prune", Flag(false)),
    ]
}

/// How weights were trained, as far as it decides which decoders go with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightKind {
    /// Which rows a row may attend to.
    pub attention: Attention,
    /// Which row predicts a position.
    pub readout: Readout,
    /// Whether they rewrite committed tokens (LLaDA2.1, arXiv 2602.08676).
    pub edits: bool,
    /// Whether a draft model runs beside them.
    pub drafts: bool,
}

impl WeightKind {
    /// The preset of a request that names none.
    pub fn default_preset(self) -> &'static str {
        match (self.attention, self.readout) {
            (Attention::Causal, _) if self.drafts => "speculative",
            (Attention::Full, _) => DEFAULT,
            (Attention::Causal, Readout::Own) => "wedlm_next",
            (Attention::Causal, Readout::Previous) => "autoregressive",
            (Attention::BlocksAfterPrompt(_), _) => "d2f",
            (Attention::Blocks(_), _) if self.edits => "editing",
            (Attention::Blocks(_), _) => "block_causal",
            (Attention::Canvas(_), _) => "canvas",
        }
    }

    /// The preset that replaces [`Self::default_preset`] in a request that names no decoder and asks for
    /// something that the default's commit rule excludes, such as a grammar or penalties.
    pub fn plain_preset(self) -> &'static str {
        match (self.attention, self.readout) {
            (Attention::Causal, Readout::Own) => "wedlm",
            (Attention::Blocks(_), _) => "block_causal",
            _ => Self {
                drafts: false,
                ..self
            }
            .default_preset(),
        }
    }

    /// The presets that go with the weights.
    pub fn presets(self) -> impl Iterator<Item = &'static Preset> {
        let kind = self.attention.kind();
        PRESETS.iter().filter(move |preset| {
            let spec = DecodingSpec::parse(preset.name);
            let decoding = spec.and_then(|spec| spec.suited_to(self).resolve());
            decoding.is_ok_and(|of| {
                let (commit, schedule) = (&of.decoder.commit, &of.decoder.schedule);
                let edits = (commit.info().requires.needs)(commit.settings());
                schedule.info().attention.contains(&kind)
                    && commit.info().requires.attention.contains(&kind)
                    && of.cache.info().attention.contains(&kind)
                    && (edits != Some(Capability::Edits) || self.edits)
                    && self.reads(commit.info())
                    && (!schedule.needs_draft_model() || self.drafts)
                    && (!self.is_autoregressive() || of.window() == Some(1))
            })
        })
    }

    /// Whether a rule can read the predictions: guesses are checked at rows of their own masks.
    pub fn reads(self, rule: &CommitInfo) -> bool {
        !rule.requires.checks || self.readout == Readout::Own
    }

    /// Whether the weights predict the next token only: they were not trained on masks.
    pub fn is_autoregressive(self) -> bool {
        (self.attention, self.readout) == (Attention::Causal, Readout::Previous)
    }
}

/// The present name of the preset called `name`; `name` itself if it is no former name.
pub(super) fn current(name: &str) -> &str {
    let alias = ALIASES.iter().find(|(former, _)| *former == name);
    alias.map_or(name, |(_, present)| present)
}

/// The preset called `name`.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
