//! The trained demo checkpoints, embedded as the files of Hugging Face folders.

/// An embedded checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// The model name in requests.
    pub name: &'static str,
    own: &'static [(&'static str, &'static [u8])],
}

impl Embedded {
    /// The embedded checkpoint `name`.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|one| one.name == name)
    }

    /// File name and content of every file, in the layout of a Hugging Face model folder:
    /// `config.json`, `model.safetensors` in bf16, the tokenizer and its settings, and [`FILTER`] for
    /// [`DEMO`].
    ///
    /// Written under these names into a folder they are a checkpoint that any loader of the architecture
    /// reads.
    pub fn files(self) -> impl Iterator<Item = (&'static str, &'static [u8])> {
        self.own.iter().chain(SHARED).copied()
    }

    /// Content of a file; `None` if there is none of that name.
    pub fn file(self, name: &str) -> Option<&'static [u8]> {
        let found = self.files().find(|(candidate, _)| *candidate == name);
        found.map(|(_, content)| content)
    }
}

/// Every embedded checkpoint.
pub const ALL: [Embedded; 3] = [DEMO, WEDLM, BLOCK_CAUSAL];

/// LLaDA's architecture, full attention.
pub const DEMO: Embedded = Embedded {
    name: "demo",
    own: &[
        ("config.json", include_bytes!("../checkpoint/config.json")),
        (FILTER, include_bytes!("../checkpoint/filter.safetensors")),
        ("model.safetensors", include_bytes!("../checkpoint/model.safetensors")),
    ],
};

/// WeDLM's architecture, causal attention; trained from the weights of [`DEMO`].
pub const WEDLM: Embedded = Embedded {
    name: "demo-wedlm",
    own: &[
        ("config.json", include_bytes!("../checkpoint-wedlm/config.json")),
        ("model.safetensors", include_bytes!("../checkpoint-wedlm/model.safetensors")),
    ],
};

/// SDAR's architecture, block-causal attention in blocks of 8; trained from the weights of [`WEDLM`].
pub const BLOCK_CAUSAL: Embedded = Embedded {
    name: "demo-sdar",
    own: &[
        ("config.json", include_bytes!("../checkpoint-sdar/config.json")),
        ("model.safetensors", include_bytes!("../checkpoint-sdar/model.safetensors")),
    ],
};

/// The file that holds the filter of the commit rule `learned_filter` (Learn2PD), trained on
/// [`DEMO`] for blocks of 32.
pub const FILTER: &str = "filter.safetensors";

/// The tokenizer files, which all checkpoints share.
const SHARED: &[(&str, &[u8])] = &[
    ("generation_config.json", include_bytes!("../checkpoint/generation_config.json")),
    ("special_tokens_map.json", include_bytes!("../checkpoint/special_tokens_map.json")),
    ("tokenizer.json", include_bytes!("../checkpoint/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../checkpoint/tokenizer_config.json")),
];
