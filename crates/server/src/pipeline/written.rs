//! A canvas that the client writes: its pieces as tokens.

use decode::{Offset, Pin};
use engine::{Given, Limits};
use step::{Attention, TokenId};
use text::Tokenizer;

use crate::error::{ApiError, ErrorCode};

/// The request field of a canvas.
pub const FIELD: &str = "diffusion.canvas";

/// A piece of a canvas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A text that never changes.
    Text(String),
    /// Tokens that never change.
    Tokens(Vec<TokenId>),
    /// Open positions.
    Open(u32),
    /// A text that the decoder may rewrite.
    Edit(String),
    /// Tokens that the decoder may rewrite.
    Seed(Vec<TokenId>),
}

/// The given tokens of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Tokens on the canvas and behind it.
    pub given: Given,
    /// Length of the canvas; `None` = the request has a budget.
    pub length: Option<u32>,
}

impl Written {
    /// Tokens behind the canvas that end the answer.
    pub fn tail(&self) -> &[TokenId] {
        match self.length {
            Some(_) => &self.given.suffix,
            None => &[],
        }
    }
}

/// The canvas of `pieces`. Under full attention the given pieces at its end
/// lie behind the canvas, as a suffix does.
///
/// # Errors
/// Weights that read no canvas; a mask or a stop token among given ones; a text that cannot be encoded;
/// an editable piece where `edits` is false; a piece beyond the context.
pub fn written(
    tokenizer: &Tokenizer,
    limits: Limits,
    pieces: &[Piece],
    edits: bool,
) -> Result<Written, ApiError> {
    let invalid = |param: String, rest: &str| ApiError::field(ErrorCode::InvalidValue, param, rest);
    if !matches!(limits.attention, Attention::Full | Attention::Canvas(_)) {
        let rest = "needs a model with full attention or with canvases of noise";
        return Err(ApiError::field(ErrorCode::UnsupportedParameter, FIELD, rest));
    }
    let is_edit = |piece: &Piece| matches!(piece, Piece::Edit(_) | Piece::Seed(_));
    let is_free = |piece: &Piece| is_edit(piece) || matches!(piece, Piece::Open(_));
    let last = match limits.attention {
        Attention::Full => pieces.iter().rposition(is_free).unwrap_or_default(),
        _ => pieces.len(),
    };
    let (mut given, mut length) = (Given::default(), 0_u32);
    for (index, piece) in pieces.iter().enumerate() {
        let param = |member: &str| format!("{FIELD}[{index}].{member}");
        let encode = |text: &str, member: &str| {
            let ids = tokenizer.encode(text, false);
            ids.map_err(|error| ApiError::from_text(error, &param(member)))
        };
        let (tokens, member) = match piece {
            Piece::Open(count) => {
                length = length.saturating_add(*count);
                (Vec::new(), "open")
            }
            Piece::Text(text) => (encode(text, "text")?, "text"),
            Piece::Tokens(tokens) | Piece::Seed(tokens) => (tokens.clone(), "tokens"),
            Piece::Edit(_) if !edits => {
                let rest = "needs a decoder that rewrites tokens: diffusion.commit \"edit\"";
                return Err(invalid(param("edit"), rest));
            }
            Piece::Edit(text) => (encode(text, "edit")?, "edit"),
        };
        if tokens.iter().any(|token| tokenizer.mask_id() == Some(*token)) {
            return Err(invalid(
                param(member),
                "must not have the mask token: use a piece that is open",
            ));
        }
        if index > last {
            given.suffix.extend(tokens);
        } else {
            let editable = is_edit(piece);
            for token in tokens {
                given.pins.push(Pin { offset: Offset::new(length), token, editable });
                length = length.saturating_add(1);
            }
        }
        if length as usize + given.suffix.len() > limits.max_model_len as usize {
            let rest = format!(
                "does not fit: with it the canvas has more than the {} tokens of this model's context",
                limits.max_model_len
            );
            return Err(ApiError::field(ErrorCode::ContextLengthExceeded, param(member), rest));
        }
    }
    Ok(Written { given, length: Some(length) })
}
