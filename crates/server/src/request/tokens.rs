//! The bodies of `/tokenize` and `/detokenize`.

use step::TokenId;

use super::{Input, chat, check_model};
use crate::error::{ApiError, ErrorCode};
use crate::fields::{Fields, integer, text};
use crate::json::parse_object;

/// What to encode, always one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizeRequest {
    /// A text or a chat.
    pub input: Input,
    /// Whether a text gets the tokens that the checkpoint puts around texts; a chat template
    /// writes its own.
    pub add_special_tokens: bool,
}

/// Parses and checks a body of `/tokenize` for the served model `served`.
///
/// # Errors
/// The first fault.
pub fn tokenize(body: &[u8], served: &str) -> Result<TokenizeRequest, ApiError> {
    let object = parse_object(body)?;
    let fields = Fields::new(&object, "");
    let model = fields.text("model")?;
    let input = match (fields.get("prompt"), fields.get("messages")) {
        (Some(_), Some(_)) => {
            let rest = "must not be given together with prompt";
            let code = ErrorCode::InvalidValue;
            return Err(ApiError::field(code, "messages", rest));
        }
        (None, Some(_)) => chat::input(fields)?,
        (_, None) => {
            let prompt = text(fields.required("prompt")?, || "prompt".to_owned())?;
            Input::Texts(vec![prompt.to_owned()])
        }
    };
    let add_special_tokens = fields.boolean("add_special_tokens")?.unwrap_or(true);
    check_model(model.unwrap_or(served), served)?;
    Ok(TokenizeRequest {
        input,
        add_special_tokens,
    })
}

/// Parses and checks a body of `/detokenize` for the served model `served`: ids, possibly none,
/// each below `vocab_size`.
///
/// # Errors
/// The first fault.
pub fn detokenize(body: &[u8], served: &str, vocab_size: u32) -> Result<Vec<TokenId>, ApiError> {
    let object = parse_object(body)?;
    let fields = Fields::new(&object, "");
    let model = fields.text("model")?;
    fields.required("tokens")?;
    let range = 0..=i64::from(vocab_size) - 1;
    let items = fields.list("tokens")?.unwrap_or_default();
    let ids = items.iter().enumerate().map(|(index, item)| {
        let id = integer(item, &range, || format!("tokens[{index}]"))?;
        Ok(TokenId::try_from(id).expect("the range lies within the vocabulary"))
    });
    let ids = ids.collect::<Result<_, ApiError>>()?;
    check_model(model.unwrap_or(served), served)?;
    Ok(ids)
}
