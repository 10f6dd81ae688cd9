//! The trained demo checkpoint, embedded as the files of a Hugging Face folder.

/// File name and content of every file of the checkpoint, in the layout of a Hugging Face model
/// folder (`config.json`, `model.safetensors` in bf16, the tokenizer and its settings), and
/// [`FILTER`].
///
/// Writing them under their names into one folder gives a checkpoint that any LLaDA loader reads.
pub fn files() -> &'static [(&'static str, &'static [u8])] {
    FILES
}

/// Content of one file of the checkpoint, `None` if it has no file of that name.
pub fn file(name: &str) -> Option<&'static [u8]> {
    FILES
        .iter()
        .find(|(candidate, _)| *candidate == name)
        .map(|(_, content)| *content)
}

/// The file of the checkpoint that holds the filter of the commit rule `learned_filter`
/// (Learn2PD), trained on this model for blocks of 32.
pub const FILTER: &str = "filter.safetensors";

const FILES: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("../checkpoint/config.json")),
    (FILTER, include_bytes!("../checkpoint/filter.safetensors")),
    (
        "generation_config.json",
        include_bytes!("../checkpoint/generation_config.json"),
    ),
    (
        "model.safetensors",
        include_bytes!("../checkpoint/model.safetensors"),
    ),
    (
        "special_tokens_map.json",
        include_bytes!("../checkpoint/special_tokens_map.json"),
    ),
    (
        "tokenizer.json",
        include_bytes!("../checkpoint/tokenizer.json"),
    ),
    (
        "tokenizer_config.json",
        include_bytes!("../checkpoint/tokenizer_config.json"),
    ),
];
