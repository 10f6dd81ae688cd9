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
    /// The name of `chat_template` in errors; `None`: `chat_template.jinja`.
    pub template_name: Option<String>,
    /// `additional_chat_templates/tool_use.jinja`, the template of chats with tools beside
    /// `chat_template`.
    pub tool_template: Option<Vec<u8>>,
    /// `special_tokens_map.json`.
    pub special_tokens_map: Option<Vec<u8>>,
    /// `generation_config.json`; its token ids are read.
    pub generation_config: Option<Vec<u8>>,
    /// `vocab.json` of checkpoints without `tokenizer.json`.
    pub vocab: Option<Vec<u8>>,
    /// `merges.txt` of checkpoints without `tokenizer.json`.
    pub merges: Option<Vec<u8>>,
}

/// Maximum bytes of one file.
const FILE_BYTES: u64 = 256 << 20;

/// The first words of the file that stands in place of one that Git LFS has not downloaded.
const POINTER: &[u8] = b"version https://git-lfs";

/// The content of a regular file of at most [`FILE_BYTES`]. Opening a pipe waits for a writer, and
/// a device may have no end.
fn read_regular(path: &Path) -> std::io::Result<Vec<u8>> {
    let refused = |reason: String| std::io::Error::new(ErrorKind::InvalidInput, reason);
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(refused("expected a regular file, found another kind".to_owned()));
    }
    if found.len() > FILE_BYTES {
        let bytes = found.len();
        return Err(refused(format!("expected at most {FILE_BYTES} bytes, found {bytes}")));
    }
    let bytes = std::fs::read(path)?;
    if bytes.starts_with(POINTER) {
        let found =
            "expected the file, found a pointer of Git LFS: run `git lfs pull` in its folder";
        return Err(refused(found.to_owned()));
    }
    Ok(bytes)
}

impl TokenizerFiles {
    /// The same files with the chat template in `path`, for chats with tools too.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn with_chat_template(self, path: &Path) -> Result<Self, TextError> {
        let bytes = read_regular(path).map_err(|error| TextError::io(path, &error))?;
        Ok(Self {
            chat_template: Some(bytes),
            template_name: Some(path.display().to_string()),
            tool_template: None,
            ..self
        })
    }

    /// Reads the files of `folder`; missing files stay `None`.
    ///
    /// # Errors
    /// If an existing file cannot be read.
    pub fn read(folder: &Path) -> Result<Self, TextError> {
        let read = |name: &str| {
            let path = folder.join(name);
            match read_regular(&path) {
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
            template_name: None,
            tool_template: read("additional_chat_templates/tool_use.jinja")?,
            special_tokens_map: read("special_tokens_map.json")?,
            generation_config: read("generation_config.json")?,
            vocab: if split { read("vocab.json")? } else { None },
            merges: if split { read("merges.txt")? } else { None },
            tokenizer,
        })
    }
}
