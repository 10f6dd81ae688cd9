//! `x-request-id` of every response: the client's id if it is well-formed, else a new one.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::state::AppState;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_LEN: usize = 128;

/// The id of a request, in its extensions.
#[derive(Clone, Debug)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The id as a header.
    pub fn value(&self) -> HeaderValue {
        self.0.clone()
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("ids are checked or made to be visible ASCII")
    }
}

/// Sets the id of the request and repeats it in the response.
pub async fn attach(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(HEADER).filter(|id| is_well_formed(id.as_bytes()));
    let id = match given {
        Some(id) => id.clone(),
        None => {
            let fresh = format!("req-{:016x}", state.ids().next());
            HeaderValue::from_str(&fresh).expect("hexadecimal digits are visible ASCII")
        }
    };
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    response.headers_mut().insert(HEADER, id);
    response
}

fn is_well_formed(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(byte);
    (1..=MAX_LEN).contains(&id.len()) && id.iter().all(allowed)
}
