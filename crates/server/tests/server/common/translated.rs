//! The endpoints that translate their requests to chats.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{MODEL, Options, Server, merge, server_with};

/// One of the endpoints, with a short request to it.
#[derive(Clone, Copy, Debug)]
pub struct Translated {
    pub path: &'static str,
    usual: fn() -> Value,
}

pub const RESPONSES: Translated = Translated {
    path: "/v1/responses",
    usual: || json!({"model": MODEL, "input": "Hi", "max_output_tokens": 60}),
};

pub const MESSAGES: Translated = Translated {
    path: "/v1/messages",
    usual: || {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        json!({"model": MODEL, "messages": messages, "max_tokens": 60})
    },
};

/// A server with a context that holds functions.
pub fn wide() -> Options {
    let mut options = Options::default();
    options.sim.max_positions = 8192;
    options
}

pub fn wide_server() -> Server {
    server_with(wide())
}

impl Translated {
    /// `extra` over the fields of the short request.
    pub fn body(&self, extra: &Value) -> Value {
        merge((self.usual)(), extra.clone())
    }

    /// A request that must succeed.
    pub async fn ask(&self, server: &Server, extra: Value) -> Value {
        let (status, answer) = server.post(self.path, &self.body(&extra)).await;
        assert_eq!(status, StatusCode::OK, "{extra}: {answer}");
        answer
    }
}
