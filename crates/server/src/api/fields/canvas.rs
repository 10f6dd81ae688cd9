//! `diffusion.canvas`: the pieces of a canvas that the client writes.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::read_value;
use super::numbers::{Count, Int, TokenNumber};
use super::prompt::token_ids;
use super::types::{List, Object};
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::written::{FIELD, Piece};

/// One piece: a member and no other.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CanvasPiece")]
pub struct PieceFields {
    /// A text that stands there.
    text: Option<String>,
    /// Token ids that stand there.
    tokens: Option<List<TokenNumber>>,
    /// This number of open positions.
    open: Option<Count<1>>,
    /// A text that the decoder may rewrite.
    edit: Option<String>,
}

/// The pieces, if the request has a canvas.
///
/// # Errors
/// A piece without a member or with several; no open or editable piece; two editable pieces side by side;
/// a token outside the vocabulary.
pub fn pieces(given: Option<&RawValue>, vocab_size: u32) -> Result<Option<Vec<Piece>>, ApiError> {
    let Some(canvas) = given else {
        return Ok(None);
    };
    let value = serde_json::from_str(canvas.get()).unwrap_or_default();
    let List(fields): List<Object<PieceFields>> = read_value(FIELD, value)?;
    let piece = |(index, Object(fields)): (usize, Object<PieceFields>)| {
        fields.piece(&format!("{FIELD}[{index}]"), vocab_size)
    };
    let pieces = fields.into_iter().enumerate().map(piece).collect::<Result<Vec<_>, _>>()?;
    let is_edit = |piece: &Piece| matches!(piece, Piece::Edit(_));
    if let Some(first) = pieces.windows(2).position(|two| two.iter().all(is_edit)) {
        let rest = "must not follow another edit: join the two";
        return Err(invalid(&format!("{FIELD}[{}].edit", first + 1), rest));
    }
    match pieces.iter().any(|piece| is_edit(piece) || matches!(piece, Piece::Open(_))) {
        true => Ok(Some(pieces)),
        false => Err(invalid(FIELD, "must have a piece that is open or may be edited")),
    }
}

impl PieceFields {
    fn piece(self, param: &str, vocab_size: u32) -> Result<Piece, ApiError> {
        match (self.text, self.tokens, self.open, self.edit) {
            (Some(text), None, None, None) => Ok(Piece::Text(text)),
            (None, Some(List(tokens)), None, None) => {
                Ok(Piece::Tokens(token_ids(&tokens, vocab_size, &format!("{param}.tokens"))?))
            }
            (None, None, Some(open), None) => Ok(Piece::Open(Int::count(open))),
            (None, None, None, Some(text)) => Ok(Piece::Edit(text)),
            _ => Err(invalid(param, "must have one of text, tokens, open and edit")),
        }
    }
}

fn invalid(param: &str, rest: &str) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}
