//! The playground: a page at `/` that shows an answer lane by lane. Its files are part of the
//! binary; it loads nothing from other servers.

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::route::{About, Route};

/// The page may run and show its own files and send requests to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// One file of the page.
#[derive(Debug)]
pub struct PageFile {
    /// Its path.
    pub path: &'static str,
    /// Its content type alone.
    kind: [&'static str; 1],
    content: &'static str,
}

/// A file of the folder `playground`, served under its name.
macro_rules! page_file {
    ($name:literal, $kind:expr) => {
        PageFile {
            path: concat!("/playground/", $name),
            kind: [$kind],
            content: include_str!(concat!("../playground/", $name)),
        }
    };
}

/// The page and all files that it loads.
pub const FILES: &[PageFile] = &[
    PageFile {
        path: "/",
        kind: ["text/html; charset=utf-8"],
        content: include_str!("../playground/index.html"),
    },
    page_file!("style.css", "text/css; charset=utf-8"),
    page_file!("icon.svg", "image/svg+xml"),
    page_file!("main.js", SCRIPT),
    page_file!("form.js", SCRIPT),
    page_file!("race.js", SCRIPT),
    page_file!("api.js", SCRIPT),
    page_file!("chart.js", SCRIPT),
    page_file!("decide.js", SCRIPT),
    page_file!("decoder.js", SCRIPT),
    page_file!("panel.js", SCRIPT),
    page_file!("parts.js", SCRIPT),
    page_file!("trace.js", SCRIPT),
    page_file!("eventsource-parser/index.js", SCRIPT),
    page_file!("eventsource-parser/LICENSE", TEXT),
];

/// The files, without a key; the page's requests to other paths need theirs.
pub fn routes() -> impl Iterator<Item = Route> {
    FILES.iter().map(|file| {
        let about = About::get("A file of the playground.").answers(&file.kind);
        Route::new(file.path, get(move || async move { file.respond() }), about)
    })
}

impl PageFile {
    /// The response with the file and its headers.
    pub fn respond(&self) -> Response {
        let headers = [
            (CONTENT_TYPE, self.kind[0]),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // Another version of the binary has other files.
            (CACHE_CONTROL, "no-cache"),
        ];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        (headers, self.content).into_response()
    }
}
