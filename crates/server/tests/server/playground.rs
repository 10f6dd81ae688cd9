//! The playground: files, content security policy, size, switching it off.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::common::{Options, Server, server, server_with};
use asynclane_server::ApiKeys;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use sha2::{Digest, Sha256};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/playground");
/// Most bytes of the page and all files that it loads.
const ROOM: usize = 60_000;
/// Third-party files as their registry publishes them: `dist/index.js` and `LICENSE` of
/// eventsource-parser 3.1.1 on npm.
const THEIRS: [(&str, &str); 2] = [
    (
        "eventsource-parser/index.js",
        "74eb03948c048c68b048b3ff3e11e8ddf9470516379567544a93a83c448569d3",
    ),
    (
        "eventsource-parser/LICENSE",
        "835eb611a23301b27115ca1be9f754c876e643ceb7fe63049c6b50609a1cafeb",
    ),
];

/// The files of the folder, by their paths in it.
fn files() -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut folders = vec![std::path::PathBuf::from(FOLDER)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(FOLDER).unwrap();
                files.insert(name.to_str().unwrap().to_owned());
            }
        }
    }
    files
}

/// Where a file of the folder is served.
fn address(file: &str) -> String {
    match file {
        "index.html" => "/".to_owned(),
        file => format!("/playground/{file}"),
    }
}

fn without() -> Server {
    let mut options = Options::default();
    options.settings.playground = false;
    server_with(options)
}

#[tokio::test]
async fn every_file_is_served_with_its_type_and_the_policy() {
    let server = server();
    for file in files() {
        let path = address(&file);
        let (status, headers, body) = server.get(&path).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert_eq!(body, std::fs::read(format!("{FOLDER}/{file}")).unwrap());
        let kind = match file.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        };
        assert_eq!(headers["content-type"], kind, "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        let rules: Vec<_> = policy.split("; ").collect();
        assert_eq!(rules[0], "default-src 'none'", "{path}");
        assert!(rules.contains(&"frame-ancestors 'none'"), "{path}");
        for rule in rules {
            assert!(!rule.contains("unsafe"), "{path}: {rule}");
            assert!(!rule.contains([':', '*', '.']), "{path}: {rule}");
        }
    }
}

#[tokio::test]
async fn a_head_tells_the_length_and_sends_nothing() {
    let server = server();
    for file in files() {
        let request = Request::builder().method(Method::HEAD).uri(address(&file));
        let request = request.body(Body::empty()).unwrap();
        let (status, headers, body) = server.call(request).await;
        assert_eq!(status, StatusCode::OK, "{file}");
        assert!(body.is_empty(), "{file}");
        let length = std::fs::metadata(format!("{FOLDER}/{file}")).unwrap().len();
        assert_eq!(headers["content-length"], length.to_string(), "{file}");
    }
}

#[test]
fn the_page_is_small() {
    let length = |file: String| std::fs::metadata(format!("{FOLDER}/{file}")).unwrap().len();
    let total: u64 = files().into_iter().map(length).sum();
    assert!(total <= ROOM as u64, "{total} bytes, at most {ROOM}");
}

#[test]
fn files_of_others_are_as_published() {
    for (file, expected) in THEIRS {
        let mut digest = String::new();
        for byte in Sha256::digest(std::fs::read(format!("{FOLDER}/{file}")).unwrap()) {
            write!(digest, "{byte:02x}").unwrap();
        }
        assert_eq!(digest, expected, "{file}");
    }
    let theirs: BTreeSet<_> = THEIRS.map(|(file, _)| file.to_owned()).into();
    let files = files();
    let in_folders: BTreeSet<_> = files
        .into_iter()
        .filter(|file| file.contains('/'))
        .collect();
    assert_eq!(in_folders, theirs);
}

/// The policy forbids inline code and files of other servers.
#[test]
fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
    for file in files() {
        let text = std::fs::read_to_string(format!("{FOLDER}/{file}")).unwrap();
        if file == "index.html" {
            for inline in ["<style", " style=", "<script>", "javascript:", " on"] {
                let found = text.match_indices(inline).find(|(at, found)| {
                    let rest = &text[at + found.len()..];
                    let name = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
                    *found != " on" || name.starts_with('=')
                });
                assert_eq!(found, None, "{file}");
            }
        }
        if !file.ends_with("LICENSE") {
            let names = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!names.contains("http://"), "{file}");
            assert!(!names.contains("https://"), "{file}");
        }
        for written in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval("] {
            assert!(!text.contains(written), "{file}: {written}");
        }
        for kept in [
            "localStorage",
            "sessionStorage",
            "document.cookie",
            "indexedDB",
        ] {
            assert!(!text.contains(kept), "{file}: {kept}");
        }
    }
}

#[tokio::test]
async fn the_page_needs_no_key_and_no_model() {
    let mut options = Options::default();
    options.settings.keys = ApiKeys::default().with_key("team", "secret");
    let server = server_with(options);
    assert_eq!(server.get("/").await.0, StatusCode::OK);
    assert_eq!(server.get("/v1/models").await.0, StatusCode::UNAUTHORIZED);
    let loading = asynclane_server::AppState::new(asynclane_server::Settings::default());
    let router = asynclane_server::router(loading);
    let request = Request::get("/").body(Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_playground_can_be_disabled() {
    let server = without();
    for file in files() {
        let (status, headers, body) = server.get(&address(&file)).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{file}");
        assert_eq!(headers["content-type"], "application/json", "{file}");
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(error["error"]["code"], "unknown_url", "{file}");
    }
    assert_eq!(server.get("/health").await.0, StatusCode::OK);
}
