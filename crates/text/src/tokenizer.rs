//! The tokenizer of a checkpoint: converts text to token ids and back.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use decode::{TokenClass, TokenClasses};
use tokenizers::Tokenizer as HfTokenizer;

use crate::classify::classify;
use crate::cut::{Cuts, unmarked};
use crate::detokenizer::{Detokenizer, SpecialTokens};
use crate::reach::longest_token_bytes;
use crate::settings::{Settings, TemplateSource};
use crate::special::{Role, Roles, add_tokens, encode_with, id, parse, text};
use crate::vocabulary::Vocabulary;
use crate::{ChatTemplate, Conversation, TextError, TokenId, TokenizerFiles, split_files};

/// The tokenizer of one checkpoint with its special tokens and chat template. Immutable after
/// setup; share it in an `Arc`.
#[derive(Debug)]
pub struct Tokenizer {
    hf: HfTokenizer,
    vocabulary: Arc<Vocabulary>,
    classes: Arc<TokenClasses>,
    roles: Roles,
    eos_ids: Vec<TokenId>,
    /// Tokens that `encode` adds in addition to those that tokenizer.json adds.
    prepend: Option<TokenId>,
    append: Option<TokenId>,
    longest_token_bytes: Option<usize>,
    chat: Option<ChatTemplate>,
    /// Only if names of control tokens in a chat are plain text.
    cuts: Option<Cuts>,
}

impl Tokenizer {
    /// Reads the tokenizer files of a checkpoint's folder.
    ///
    /// # Errors
    /// If a file is missing, unreadable or malformed.
    pub fn from_folder(folder: &Path) -> Result<Self, TextError> {
        Self::new(&TokenizerFiles::read(folder)?)
    }

    /// Builds the tokenizer from `files`.
    ///
    /// # Errors
    /// If a file is missing or malformed, or the chat template can answer no chat; the error names
    /// file, key or line, expected and found.
    pub fn new(files: &TokenizerFiles) -> Result<Self, TextError> {
        let settings = Settings::read(files)?;
        let mut hf = match &files.tokenizer {
            Some(bytes) => parse(bytes)?,
            None => parse(&split_files::join(files, settings.class.as_deref())?)?,
        };
        hf.with_padding(None);
        hf.with_truncation(None).map_err(|e| TextError::malformed("tokenizer.json", e))?;
        add_tokens(&mut hf, &settings)?;
        let vocabulary = Vocabulary::new(&hf)?;
        let roles = Roles::new(&hf, &settings);
        let (bos, eos) = (id(&roles.bos), id(&roles.eos));
        let mut eos_ids = settings.eos_ids.clone();
        eos_ids.extend(eos.filter(|id| !settings.eos_ids.contains(id)));
        let added = encode_with(&hf, "", true)?;
        let prepend = bos.filter(|id| added.get_ids().first() != Some(id));
        let append = eos.filter(|id| added.get_ids().last() != Some(id));
        let compiled =
            |found: TemplateSource| ChatTemplate::new(&found.file, found.source, &settings.roles);
        let chat = settings.template.map(compiled).transpose()?;
        let chat = match (chat, settings.tool_template) {
            (Some(chat), Some(tools)) => Some(chat.with_tools(compiled(tools)?)),
            (chat, _) => chat,
        };
        Ok(Self {
            classes: Arc::new(classes(&vocabulary)),
            prepend: prepend.filter(|_| settings.add_bos),
            append: append.filter(|_| settings.add_eos),
            longest_token_bytes: longest_token_bytes(&hf),
            hf,
            vocabulary,
            roles,
            eos_ids,
            chat,
            cuts: None,
        })
    }

    /// Sets the mask token if the tokenizer files do not name it: some families name it only in
    /// `config.json`. From then on it is a special token.
    pub fn set_mask_id(&mut self, id: TokenId) {
        let text = self.hf.id_to_token(id).unwrap_or_default();
        self.roles.mask = Some(Role { text, id: Some(id) });
    }

    /// Encodes names of special tokens in the texts of a chat as plain text from now on:
    /// [`Self::marked`] and [`Self::encode_chat`] do so.
    ///
    /// # Errors
    /// If the tokenizer adds something at a place where a name is cut.
    pub fn split_control_tokens(&mut self) -> Result<(), TextError> {
        let known = self.hf.get_added_tokens_decoder();
        let special = known.iter().filter(|(id, _)| self.is_special(**id));
        let cuts = Cuts::new(&self.hf, special.map(|(_, token)| token.content.clone()))?;
        let id = cuts.mark;
        self.cuts = Some(cuts);
        for text in ["a b", "<|a|>"] {
            let mark = self.cuts.as_ref().and_then(|cuts| cuts.tokenizer.id_to_token(id));
            let (first, rest) = text.split_at(1);
            let cut = format!("{first}{}{rest}", mark.unwrap_or_default());
            let found = self.decode(&self.encode_chat(&cut)?, false);
            if found != text {
                let expected = format!("{text:?} after a cut, for names of control tokens");
                let found = format!("{found:?}");
                return Err(TextError::value("tokenizer.json", "decoder", &expected, found));
            }
        }
        Ok(())
    }

    /// `chat` as its template is to see it: with names of special tokens marked, if they are plain
    /// text.
    pub fn marked<'a>(&self, chat: Cow<'a, Conversation>) -> Cow<'a, Conversation> {
        match &self.cuts {
            Some(cuts) => Cow::Owned(cuts.chat(&chat)),
            None => chat,
        }
    }

    /// A rendered chat without the marks of [`Self::marked`].
    pub fn unmarked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.cuts {
            Some(_) => unmarked(text),
            None => Cow::Borrowed(text),
        }
    }

    /// The token ids of a rendered chat, whose template has the special tokens already.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_chat(&self, text: &str) -> Result<Vec<TokenId>, TextError> {
        let Some(cuts) = &self.cuts else {
            return self.encode(text, false);
        };
        let encoding = encode_with(&cuts.tokenizer, text, false)?;
        let ids = encoding.get_ids().iter().copied();
        Ok(ids.filter(|id| *id != cuts.mark).collect())
    }

    /// The token ids of `text`. Special tokens written in the text are always encoded as their
    /// ids. `add_special_tokens` adds those that the checkpoint puts around a text; do not set it
    /// for a rendered chat.
    ///
    /// # Errors
    /// [`TextError::Encode`] if the vocabulary has no token for some of the text.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TextError> {
        let encoding = encode_with(&self.hf, text, add_special_tokens)?;
        let mut ids = Vec::with_capacity(encoding.len() + 2);
        ids.extend(self.prepend.filter(|_| add_special_tokens));
        ids.extend_from_slice(encoding.get_ids());
        ids.extend(self.append.filter(|_| add_special_tokens));
        Ok(ids)
    }

    /// The largest number of bytes of a text that one token stands for: a text of `n` bytes has
    /// at least `n / longest_token_bytes` tokens. `None` if there is no such bound, because the
    /// tokenizer drops text, or puts any amount of it into one token.
    pub fn longest_token_bytes(&self) -> Option<usize> {
        self.longest_token_bytes
    }

    /// The text of `ids` without any clean-up; `skip_special` omits special tokens. Ids without a
    /// token add nothing; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> String {
        let specials = if skip_special { SpecialTokens::Skip } else { SpecialTokens::Keep };
        let mut detokenizer = self.detokenizer(specials);
        let mut text = detokenizer.push(ids);
        text.push_str(&detokenizer.finish());
        text
    }

    /// A detokenizer for one sequence of tokens.
    pub fn detokenizer(&self, specials: SpecialTokens) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.vocabulary), specials, self.mask_id())
    }

    /// The id of the vocabulary entry `token`.
    pub fn token_to_id(&self, token: &str) -> Option<TokenId> {
        self.hf.token_to_id(token)
    }

    /// The vocabulary entry of `id` (`Ġthe`, `▁the`, `<|endoftext|>`).
    pub fn id_to_token(&self, id: TokenId) -> Option<String> {
        self.hf.id_to_token(id)
    }

    /// The bytes that `id` adds to a text when it is not the first token; `None` for an id
    /// without a token.
    pub fn token_bytes(&self, id: TokenId) -> Option<Vec<u8>> {
        self.vocabulary.bytes(id)
    }

    /// [`Self::token_bytes`] as text, with U+FFFD for incomplete characters; empty for an id
    /// without a token.
    pub fn token_text(&self, id: TokenId) -> String {
        let bytes = self.token_bytes(id).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The table used for decoding.
    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// One more than the largest token id. The model's own vocabulary may be larger.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// True if `id` is a special token (start, end, header, mask, ...).
    pub fn is_special(&self, id: TokenId) -> bool {
        self.vocabulary.is_special(id) || self.mask_id() == Some(id)
    }

    /// The classes of all tokens for boundary rules; special tokens have no class.
    pub fn classes(&self) -> Arc<TokenClasses> {
        Arc::clone(&self.classes)
    }

    /// The chat template.
    ///
    /// # Errors
    /// [`TextError::NoChatTemplate`].
    pub fn chat_template(&self) -> Result<&ChatTemplate, TextError> {
        self.chat.as_ref().ok_or(TextError::NoChatTemplate)
    }

    /// Text of the token that begins a text.
    pub fn bos_token(&self) -> Option<&str> {
        text(&self.roles.bos)
    }

    /// Id of the token that begins a text.
    pub fn bos_id(&self) -> Option<TokenId> {
        id(&self.roles.bos)
    }

    /// Text of the token that ends a text.
    pub fn eos_token(&self) -> Option<&str> {
        text(&self.roles.eos)
    }

    /// Id of the token that ends a text.
    pub fn eos_id(&self) -> Option<TokenId> {
        id(&self.roles.eos)
    }

    /// All ids that end a text, from generation_config.json and the eos token, without
    /// duplicates.
    pub fn eos_ids(&self) -> &[TokenId] {
        &self.eos_ids
    }

    /// Text of the padding token.
    pub fn pad_token(&self) -> Option<&str> {
        text(&self.roles.pad)
    }

    /// Id of the padding token.
    pub fn pad_id(&self) -> Option<TokenId> {
        id(&self.roles.pad)
    }

    /// Text of the mask token.
    pub fn mask_token(&self) -> Option<&str> {
        text(&self.roles.mask)
    }

    /// Id of the mask token.
    pub fn mask_id(&self) -> Option<TokenId> {
        id(&self.roles.mask)
    }
}

fn classes(vocabulary: &Vocabulary) -> TokenClasses {
    let class = |id: TokenId| match vocabulary.bytes(id) {
        Some(bytes) if !vocabulary.is_special(id) => classify(&String::from_utf8_lossy(&bytes)),
        _ => TokenClass::default(),
    };
    let len = TokenId::try_from(vocabulary.len()).expect("ids are below 2^24");
    TokenClasses::new((0..len).map(class).collect())
}
