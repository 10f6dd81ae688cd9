//! The playground: files, content security policy, size, switching it off.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::common::*;
use sha2::{Digest, Sha256};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/playground");
/// Most bytes of the page and all files that it loads.
const MAX_BYTES: usize = 76_000;
/// Third-party files as their registry publishes them: `dist/index.js` and `LICENSE` of
/// eventsource-parser 3.1.1 on npm.
const THIRD_PARTY: [(&str, &str); 2] = rows! {
    "eventsource-parser/index.js",
        "74eb03948c048c68b048b3ff3e11e8ddf9470516379567544a93a83c448569d3";
    "eventsource-parser/LICENSE",
        "835eb611a23301b27115ca1be9f754c876e643ceb7fe63049c6b50609a1cafeb";
};

/// The files of the folder, by their paths in it, with their bytes.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(FOLDER)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(FOLDER).unwrap().to_str().unwrap();
                files.push((name.to_owned(), std::fs::read(&path).unwrap()));
            }
        }
    }
    files
}

/// The path at which a file of the folder is served.
fn address(file: &str) -> String {
    match file {
        "index.html" => "/".to_owned(),
        file => format!("/playground/{file}"),
    }
}

#[tokio::test]
async fn every_file_is_served_with_its_type_and_the_policy() {
    let server = server();
    for (file, bytes) in files() {
        let path = address(&file);
        let reply = server.get(&path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.bytes, bytes);
        let kind = match file.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        };
        for (name, value) in [
            ("content-type", kind),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
        ] {
            assert_eq!(reply.headers[name], value, "{path}");
        }
        let policy = reply.header("content-security-policy").unwrap();
        let rules: Vec<_> = policy.split("; ").collect();
        assert_eq!(rules[0], "default-src 'none'", "{path}");
        assert!(rules.contains(&"frame-ancestors 'none'"), "{path}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert!(!policy.contains([':', '*', '.']), "{path}: {policy}");
        // A HEAD request tells the length and sends nothing.
        let reply = server.send("HEAD", &path, &[], "").await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.bytes.is_empty(), "{path}");
        assert_eq!(reply.headers["content-length"], bytes.len().to_string());
    }
}

#[test]
fn the_page_is_small_and_third_party_files_are_as_published() {
    let files = files();
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(total <= MAX_BYTES, "{total} bytes, at most {MAX_BYTES}");
    let mut digests = BTreeSet::new();
    for (file, bytes) in files.into_iter().filter(|(file, _)| file.contains('/')) {
        let mut digest = String::new();
        for byte in Sha256::digest(bytes) {
            write!(digest, "{byte:02x}").unwrap();
        }
        digests.insert((file, digest));
    }
    let expected = THIRD_PARTY.map(|(file, digest)| (file.to_owned(), digest.to_owned()));
    assert_eq!(digests, expected.into());
}

/// The policy forbids inline code and files of other servers.
#[test]
fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
    for (file, bytes) in files() {
        let text = String::from_utf8(bytes).unwrap();
        if file == "index.html" {
            for inline in ["<style", " style=", "<script>", "javascript:", " on"] {
                let found = text.match_indices(inline).find(|(start, found)| {
                    let rest = &text[start + found.len()..];
                    let name = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
                    *found != " on" || name.starts_with('=')
                });
                assert_eq!(found, None, "{file}");
            }
        }
        if !file.ends_with("LICENSE") {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            let is_foreign = text.contains("http://") || text.contains("https://");
            assert!(!is_foreign, "{file}");
        }
        for word in rows! {
            "innerHTML"; "outerHTML"; "insertAdjacentHTML"; "eval("; "localStorage";
            "sessionStorage"; "document.cookie"; "indexedDB";
        } {
            assert!(!text.contains(word), "{file}: {word}");
        }
    }
}

#[tokio::test]
async fn the_playground_can_be_disabled() {
    let server = server_where(|options| options.settings.playground = false);
    for (file, _) in files() {
        let reply = server.get(&address(&file)).await;
        assert_eq!(reply.fault(404), "unknown_url", "{file}");
        assert_eq!(reply.headers["content-type"], "application/json", "{file}");
    }
    assert_eq!(server.get("/health").await.status, 200);
}
