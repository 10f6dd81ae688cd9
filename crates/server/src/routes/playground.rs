//! The playground: a page at `/` on which an answer comes about lane by lane. All of it is part
//! of the binary, and it loads nothing from elsewhere.

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};

/// What the page may do: run and show its own parts, and ask this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// One file of the page.
#[derive(Debug)]
pub struct Part {
    /// Where it is served.
    pub path: &'static str,
    kind: &'static str,
    content: &'static str,
}

/// A file of the folder `playground`, under its path there.
macro_rules! part {
    ($name:literal, $kind:expr) => {
        Part {
            path: concat!("/playground/", $name),
            kind: $kind,
            content: include_str!(concat!("../playground/", $name)),
        }
    };
}

/// The page and everything that it loads.
pub const PARTS: &[Part] = &[
    Part {
        path: "/",
        kind: "text/html; charset=utf-8",
        content: include_str!("../playground/index.html"),
    },
    part!("style.css", "text/css; charset=utf-8"),
    part!("icon.svg", "image/svg+xml"),
    part!("main.js", SCRIPT),
    part!("api.js", SCRIPT),
    part!("chart.js", SCRIPT),
    part!("decoder.js", SCRIPT),
    part!("panel.js", SCRIPT),
    part!("trace.js", SCRIPT),
    part!("eventsource-parser/index.js", SCRIPT),
    part!("eventsource-parser/LICENSE", TEXT),
];

impl Part {
    /// The file with what browsers shall know of it.
    pub fn respond(&self) -> Response {
        let headers = [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // Another version of the binary has another page.
            (CACHE_CONTROL, "no-cache"),
        ];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        (headers, self.content).into_response()
    }
}
