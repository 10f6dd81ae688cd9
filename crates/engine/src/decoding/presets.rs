//! Named decoders: full settings that a request starts from.

use decode::Value;

/// A named, full setting.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// Its settings as [`Registry::parse`](super::Registry::parse) reads them.
    settings: &'static str,
}

impl Preset {
    /// Its settings with their values.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, Value<'static>)> {
        let items = self.settings.split(',');
        items.filter_map(|item| item.split_once('=').map(|(name, value)| (name, read(value))))
    }
}

/// A value as configuration files and the command line write it.
pub(super) fn read(value: &str) -> Value<'_> {
    match value {
        "true" => Value::Flag(true),
        "false" => Value::Flag(false),
        _ => match (value.parse(), value.parse()) {
            (Ok(integer), _) => Value::Integer(integer),
            (_, Ok(number)) => Value::Number(number),
            _ => Value::Name(value),
        },
    }
}

/// The preset of a request that names none, for weights with full attention.
pub const DEFAULT: &str = "balanced";

/// Names of [`PRESETS`], in order.
pub const NAMES: &[&str] = &{
    let mut names = [""; PRESETS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = PRESETS[index].name;
        index += 1;
    }
    names
};

/// The presets that are tuned for serving. Each is nearly the cheapest decoder of the measured
/// comparison whose loss against `vanilla` stays within a bound on every problem set; a test holds them
/// against the result file.
pub const TUNED: [&str; 3] = ["balanced", "fast", "low_latency"];

/// Former names of presets, each with the present one. Callers may use them; no list shows them.
const ALIASES: &[(&str, &str)] = &[("quality", "balanced")];

/// Every preset: [`TUNED`], then the reference points that comparisons need.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "balanced",
        summary: "AsyncLane under an entropy bound, with rows near the last commits: for one request and for many",
        settings: "schedule=asynclane,commit=entropy_bound,cache=fused,\
                   rows=near,row_reach=16,entropy_threshold=0.15,draft_threshold=0.99,\
                   lookahead=8,fork=prose,lone_stops=false",
    },
    Preset {
        name: "fast",
        summary: "`balanced` with bolder commits and fewer rows: for many requests at once, or few processors",
        settings: "schedule=asynclane,commit=entropy_bound,cache=fused,\
                   rows=near,row_reach=12,entropy_threshold=0.2,draft_threshold=0.99,\
                   lookahead=8,fork=prose,lone_stops=false",
    },
    Preset {
        name: "low_latency",
        summary: "`balanced` with guesses that the next forward pass verifies: for one request on a GPU; temperature 0",
        settings: "schedule=asynclane,commit=nested_drafts,cache=fused,\
                   rows=near,row_reach=16,entropy_threshold=0.15,draft_threshold=0.99,\
                   lookahead=8,fork=prose,lone_stops=false",
    },
    Preset {
        name: "asynclane",
        summary: "AsyncLane untuned: Fast-dLLM's threshold, a lookahead of one block",
        settings: "schedule=asynclane,commit=threshold,cache=fused,\
                   rows=open,refresh=32,threshold=0.9,draft_threshold=0.9,lookahead=32,fork=prose,\
                   lone_stops=false",
    },
    Preset {
        name: "asynclane_paper",
        summary: "AsyncLane with fork snapshots and a refresh at every lane start",
        settings: "schedule=asynclane,commit=threshold,cache=snapshot,\
                   rows=all,refresh=lane,threshold=0.9,lane_budget=true",
    },
    Preset {
        name: "vanilla",
        summary: "LLaDA's sampler: one token per forward pass over the whole canvas, which a stop token cuts",
        settings: "schedule=block_wise,commit=top_k,cache=none,\
                   tokens_per_step=1",
    },
    Preset {
        name: "fast_dllm",
        summary: "Fast-dLLM's threshold rule without a cache, ended at the first stop token",
        settings: "schedule=block_wise,commit=threshold,cache=none,\
                   threshold=0.9",
    },
    Preset {
        name: "fast_dllm_prefix",
        summary: "Fast-dLLM with the prefix cache, ended at the first stop token",
        settings: "schedule=block_wise,commit=threshold,cache=prefix,\
                   threshold=0.9",
    },
    Preset {
        name: "fast_dllm_dual",
        summary: "Fast-dLLM with the dual cache, ended at the first stop token",
        settings: "schedule=block_wise,commit=threshold,cache=dual,\
                   threshold=0.9",
    },
    Preset {
        name: "fast_dllm_dual_published",
        summary: "Fast-dLLM with the dual cache as published: fills the whole canvas",
        settings: "schedule=block_wise,commit=threshold,cache=dual,\
                   threshold=0.9,prune=false,early_stop=false",
    },
    Preset {
        name: "adablock",
        summary: "AdaBlock-dLLM: blocks that end at an expected delimiter, dual cache, ended at the first stop token",
        settings: "schedule=adaptive_block,commit=threshold,cache=dual,\
                   threshold=0.9,delimiter_threshold=0.3",
    },
    Preset {
        name: "d3llm",
        summary: "d3LLM's multi-block decoding without training: entropy rule, dual cache, ended at the first stop token",
        settings: "schedule=multi_block,commit=entropy,cache=dual,\
                   entropy_threshold=0.45,add_block_threshold=0.1",
    },
    Preset {
        name: "dream",
        summary: "Dream's sampler: one block, the lowest entropy first, one token per forward pass, ended at the first stop token",
        settings: "schedule=block_wise,commit=scheduled,cache=none,\
                   block_length=1024,rank=entropy",
    },
    Preset {
        name: "window_diffusion",
        summary: "Window-Diffusion: 16 masks may be committed and 64 are read; the whole canvas every 32 forward passes; ended at the first stop token",
        settings: "schedule=window,commit=top_k,cache=dual,\
                   tokens_per_step=1,block_length=16,window=64,refresh=31",
    },
    Preset {
        name: "wedlm",
        summary: "WeDLM's streaming window of 16 positions, by entropy, near positions first; causal weights",
        settings: "schedule=streaming,commit=entropy,cache=exact,\
                   window=16,entropy_threshold=0.4,position_penalty=0.02,below=true,prune=false",
    },
    Preset {
        name: "wedlm_exact",
        summary: "the text of `autoregressive` at temperature 0, in fewer forward passes: guesses of a window are checked from the left; causal weights",
        settings: "schedule=streaming,commit=causal_check,cache=exact,\
                   window=32",
    },
    Preset {
        name: "wedlm_next",
        summary: "`wedlm_exact` with the text of an ordinary language model: each guess is compared with the next token that the weights predict; causal weights trained on next tokens too, as WeDLM's are",
        settings: "schedule=streaming,commit=causal_check,cache=exact,\
                   window=32,check=next",
    },
    Preset {
        name: "introspective",
        summary: "I-DLM's introspective strided decoding: a pass checks the last pass's guesses and makes the next ones at masks behind them; the text of `autoregressive` at temperature 0; causal weights that predict the next token and read masks",
        settings: "schedule=streaming,commit=causal_check,cache=exact,\
                   window=7,check=next,guesses=3,stale=drop,entropy_threshold=100",
    },
    Preset {
        name: "autoregressive",
        summary: "a window of one position: causal weights as an ordinary language model",
        settings: "schedule=streaming,commit=entropy,cache=exact,\
                   window=1,entropy_threshold=0.0,position_penalty=0.02,below=true,prune=false",
    },
    Preset {
        name: "self_speculation",
        summary: "Nemotron-Labs-Diffusion's linear self-speculation, and DFlash: a block of masks drafts, the weights check the drafts from left to right; the text is that of `autoregressive` at temperature 0",
        settings: "schedule=streaming,commit=block_check,cache=exact,\
                   window=32",
    },
    Preset {
        name: "speculative",
        summary: "drafts of a draft model, verified: the text is that of `autoregressive`; causal weights",
        settings: "schedule=speculative,commit=top_k,cache=exact,\
                   tokens_per_step=1",
    },
    Preset {
        name: "prompt_lookup",
        summary: "tokens copied from the text, verified: the text is that of `autoregressive`; causal weights",
        settings: "schedule=prompt_lookup,commit=top_k,cache=exact,\
                   tokens_per_step=1",
    },
    Preset {
        name: "block_causal",
        summary: "one block after the other by threshold, exact K/V; block-causal weights; blocks as long as the model's",
        settings: "schedule=block_wise,commit=threshold,cache=exact,\
                   threshold=0.95,prune=false",
    },
    Preset {
        name: "d2f",
        summary: "D2F: the next block opens once a tenth of the last one is filled, and commits in every step once that one is nearly full; exact K/V; block-causal weights, blocks as long as the model's",
        settings: "schedule=multi_block,commit=threshold,cache=exact,\
                   threshold=0.9,add_block_threshold=0.1,active_block_threshold=0.95,prune=false",
    },
    Preset {
        name: "s2d2",
        summary: "S2D2: the run of masks that a block guesses is checked from left to right by the same weights; block-causal weights; blocks as long as the model's",
        settings: "schedule=block_wise,commit=self_speculative,cache=exact,\
                   prune=false",
    },
    Preset {
        name: "editing",
        summary: "LLaDA2.1's quality mode: early commits that later forward passes rewrite; weights trained to edit",
        settings: "schedule=block_wise,commit=edit,cache=exact,\
                   threshold=0.7,edit_threshold=0.5,prune=false",
    },
    Preset {
        name: "editing_fast",
        summary: "LLaDA2.1's speed mode: `editing` with lower thresholds",
        settings: "schedule=block_wise,commit=edit,cache=exact,\
                   threshold=0.5,edit_threshold=0.0,prune=false",
    },
    Preset {
        name: "canvas",
        summary: "DiffusionGemma's sampler: canvases of noise as long as the model's; weights trained on noise",
        settings: "schedule=canvas,commit=renoise,cache=exact",
    },
];

/// The present name of the preset called `name`; `name` itself if it is no former name.
pub(super) fn current(name: &str) -> &str {
    let alias = ALIASES.iter().find(|(former, _)| *former == name);
    alias.map_or(name, |(_, present)| present)
}

/// The preset called `name`.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
