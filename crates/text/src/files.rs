//! The files that describe a tokenizer, read from a folder or given as bytes.

use std::io::ErrorKind;
use std::path::Path;

use crate::TextError;

/// The contents of the checkpoint files that this crate reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerFiles {
    /// `tokenizer.json`. If it is absent, `vocab` and `merges` are required.
    pub tokenizer: Option<Vec<u8>>,
    /// `tokenizer_config.json`.
    pub config: Option<Vec<u8>>,
    /// `chat_template.jinja`; takes precedence over the template in `config`.
    pub chat_template: Option<Vec<u8>>,
    /// `special_tokens_map.json`.
    pub special_tokens_map: Option<Vec<u8>>,
    /// `generation_config.json`; only its token ids are read.
    pub generation_config: Option<Vec<u8>>,
    /// `vocab.json` of checkpoints without `tokenizer.json`.
    pub vocab: Option<Vec<u8>>,
    /// `merges.txt` of checkpoints without `tokenizer.json`.
    pub merges: Option<Vec<u8>>,
}

impl TokenizerFiles {
    /// Reads the files of `folder`; missing files stay `None`.
    ///
    /// # Errors
    /// If an existing file cannot be read.
    pub fn read(folder: &Path) -> Result<Self, TextError> {
        let read = |name: &str| {
            let path = folder.join(name);
            match std::fs::read(&path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(TextError::io(&path, &error)),
            }
        };
        let tokenizer = read("tokenizer.json")?;
        let split = tokenizer.is_none();
        Ok(Self {
            config: read("tokenizer_config.json")?,
            chat_template: read("chat_template.jinja")?,
            special_tokens_map: read("special_tokens_map.json")?,
            generation_config: read("generation_config.json")?,
            vocab: if split { read("vocab.json")? } else { None },
            merges: if split { read("merges.txt")? } else { None },
            tokenizer,
        })
    }
}
