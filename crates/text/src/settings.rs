//! Settings in tokenizer_config.json, special_tokens_map.json and generation_config.json.

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::{TextError, TokenId, TokenizerFiles};

/// Names of the tokens with a role; templates use them as variables.
const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The settings of one checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// Role (`bos_token`, ...) and text of each token with a role.
    pub(crate) roles: Vec<(&'static str, String)>,
    /// Texts of additional special tokens.
    pub(crate) extra_special: Vec<String>,
    /// `added_tokens_decoder`, by id.
    pub(crate) added: Vec<(TokenId, AddedToken)>,
    /// Prepend the bos token when encoding with special tokens.
    pub(crate) add_bos: bool,
    /// Append the eos token when encoding with special tokens.
    pub(crate) add_eos: bool,
    /// `tokenizer_class`.
    pub(crate) class: Option<String>,
    /// The chat template.
    pub(crate) template: Option<TemplateSource>,
    /// The chat template of chats with tools, if it is another one.
    pub(crate) tool_template: Option<TemplateSource>,
    /// `bos_token_id` of generation_config.json.
    pub(crate) bos_ids: Vec<TokenId>,
    /// `eos_token_id` of generation_config.json: one id or many.
    pub(crate) eos_ids: Vec<TokenId>,
    /// `pad_token_id` of generation_config.json.
    pub(crate) pad_ids: Vec<TokenId>,
}

impl Settings {
    /// Reads all settings of `files`.
    ///
    /// # Errors
    /// Names the file and the key that violate the format.
    pub(crate) fn read(files: &TokenizerFiles) -> Result<Self, TextError> {
        let mut settings = Self::default();
        if let Some(bytes) = &files.config {
            settings.read_config(&Object::parse("tokenizer_config.json", bytes)?)?;
        }
        if let Some(bytes) = &files.special_tokens_map {
            settings.read_tokens(&Object::parse("special_tokens_map.json", bytes)?)?;
        }
        if let Some(bytes) = &files.generation_config {
            let object = Object::parse("generation_config.json", bytes)?;
            settings.bos_ids = object.ids("bos_token_id")?;
            settings.eos_ids = object.ids("eos_token_id")?;
            settings.pad_ids = object.ids("pad_token_id")?;
        }
        if let Some(bytes) = &files.chat_template {
            let file = files.template_name.as_deref().unwrap_or("chat_template.jinja");
            settings.template = Some(TemplateSource::read(file, bytes)?);
            // As transformers does: the folder's files replace the list in tokenizer_config.json.
            let file = "additional_chat_templates/tool_use.jinja";
            let tools = files.tool_template.as_ref();
            let tools = tools.map(|bytes| TemplateSource::read(file, bytes));
            settings.tool_template = tools.transpose()?;
        }
        Ok(settings)
    }

    /// The text of the token with this role.
    pub(crate) fn role(&self, role: &str) -> Option<&str> {
        self.roles.iter().find(|(name, _)| *name == role).map(|(_, text)| text.as_str())
    }

    fn read_config(&mut self, object: &Object<'_>) -> Result<(), TextError> {
        self.read_tokens(object)?;
        self.add_bos = object.flag("add_bos_token")?;
        self.add_eos = object.flag("add_eos_token")?;
        self.class = object.string("tokenizer_class")?;
        [self.template, self.tool_template] = object.templates()?;
        if let Some(value) = object.get("added_tokens_decoder") {
            let Value::Object(entries) = value else {
                return Err(object.wrong("added_tokens_decoder", "an object", value));
            };
            for (id, entry) in entries {
                self.added.push(object.added_token(id, entry)?);
            }
            self.added.sort_by_key(|(id, _)| *id);
        }
        Ok(())
    }

    /// Reads roles that are not set yet, and all additional special tokens.
    fn read_tokens(&mut self, object: &Object<'_>) -> Result<(), TextError> {
        for role in ROLES {
            if self.role(role).is_none()
                && let Some(value) = object.get(role)
            {
                self.roles.push((role, object.token(role, value)?));
            }
        }
        for key in ["additional_special_tokens", "extra_special_tokens"] {
            let values: Vec<&Value> = match object.get(key) {
                None => continue,
                Some(Value::Array(values)) => values.iter().collect(),
                Some(Value::Object(values)) => values.values().collect(),
                Some(other) => return Err(object.wrong(key, "a list of tokens", other)),
            };
            for value in values {
                self.extra_special.push(object.token(key, value)?);
            }
        }
        Ok(())
    }
}

/// A JSON object and the name of its file, for error messages.
pub(crate) struct Object<'a> {
    file: &'a str,
    values: Map<String, Value>,
}

impl<'a> Object<'a> {
    pub(crate) fn parse(file: &'a str, bytes: &[u8]) -> Result<Self, TextError> {
        let values = serde_json::from_slice(bytes).map_err(|e| TextError::malformed(file, e))?;
        Ok(Self { file, values })
    }

    /// The value of `key`, unless absent or null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, expected: &str, found: &Value) -> TextError {
        TextError::value(self.file, key, expected, found)
    }

    fn flag(&self, key: &str) -> Result<bool, TextError> {
        match self.get(key) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(key, "true or false", value)),
        }
    }

    fn string(&self, key: &str) -> Result<Option<String>, TextError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, "a string", other)),
        }
    }

    /// A token: its text, or an object with the text under `content`.
    fn token(&self, key: &str, value: &Value) -> Result<String, TextError> {
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        let text = text.ok_or_else(|| self.wrong(key, "a token's text", value))?;
        Ok(text.to_owned())
    }

    /// An entry of `added_tokens_decoder`; missing flags are false.
    fn added_token(&self, id: &str, entry: &Value) -> Result<(TokenId, AddedToken), TextError> {
        let key = format!("added_tokens_decoder.{id}");
        let number: TokenId =
            id.parse().map_err(|_| TextError::value(self.file, &key, "an id as key", id))?;
        let flag = |name: &str| entry.get(name).and_then(Value::as_bool).unwrap_or(false);
        let token = AddedToken::from(self.token(&key, entry)?, flag("special"))
            .single_word(flag("single_word"))
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .normalized(flag("normalized"));
        Ok((number, token))
    }

    /// One id or a list of ids; empty if the key is absent.
    fn ids(&self, key: &str) -> Result<Vec<TokenId>, TextError> {
        let values = match self.get(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let id = |value: &Value| {
            let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
            id.ok_or_else(|| self.wrong(key, "a token id or a list of them", value))
        };
        values.iter().map(id).collect()
    }

    /// `chat_template`: a string, or a list of named templates. A list of one uses that one,
    /// a longer list the one named `default`, and for chats with tools the one named `tool_use`.
    fn templates(&self) -> Result<[Option<TemplateSource>; 2], TextError> {
        let key = "chat_template";
        let file = "tokenizer_config.json: chat_template";
        let made = |source: String| TemplateSource { file: file.to_owned(), source };
        let templates = match self.get(key) {
            Some(Value::Array(templates)) => templates,
            _ => return Ok([self.string(key)?.map(made), None]),
        };
        let source = |template: &Value| Some(template.get("template")?.as_str()?.to_owned());
        let named = |key: &str| templates.iter().find(|found| name(found) == Some(key));
        let default = match templates.as_slice() {
            [only] => Some(only),
            _ => named("default"),
        };
        let expected = "a string, or a list with a template named default";
        let names: Vec<_> = templates.iter().filter_map(name).collect();
        let default = default.and_then(source).ok_or_else(|| {
            TextError::value(self.file, key, expected, format!("the names {names:?}"))
        })?;
        let tools = match named("tool_use").map(|template| (template, source(template))) {
            Some((template, None)) => {
                return Err(self.wrong(key, "a text as the template tool_use", template));
            }
            Some((_, source)) if templates.len() > 1 => source,
            _ => None,
        };
        Ok([Some(made(default)), tools.map(made)])
    }
}

/// A chat template and where it stands.
#[derive(Debug)]
pub(crate) struct TemplateSource {
    /// The file, for error messages.
    pub(crate) file: String,
    pub(crate) source: String,
}

impl TemplateSource {
    fn read(file: &str, bytes: &[u8]) -> Result<Self, TextError> {
        let source = std::str::from_utf8(bytes).map_err(|e| TextError::malformed(file, e))?;
        Ok(Self { file: file.to_owned(), source: source.to_owned() })
    }
}

/// The name of a named template.
fn name(template: &Value) -> Option<&str> {
    template.get("name").and_then(Value::as_str)
}
