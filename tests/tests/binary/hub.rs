//! Models by their id on the Hub: from the cache, from a local server in its place, and without one.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex};

use asynclane_tests::process::{command, stderr, stdout};
use serde_json::json;

use crate::{folder, gguf};

const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

/// `asynclane inspect --model MODEL` with the Hub's environment variables.
fn inspect(model: &str, home: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = command(&["inspect", "--model", model]);
    command.env("HF_HOME", home).current_dir(home);
    command.envs(variables.iter().copied());
    command.output().expect("the binary runs")
}

/// A short answer, which needs the weights.
fn generate(model: &str, home: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = command(&["generate", "--model", model, "--max-tokens", "4", "2 + 3?"]);
    command.env("HF_HOME", home).current_dir(home);
    command.envs(variables.iter().copied());
    command.output().expect("the binary runs")
}

/// The one-line error of a refused model.
fn refusal(output: &Output, code: i32) -> String {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// A cache that holds the demo checkpoint as revision `main` of `tiny/demo`.
fn cache(test: &str) -> (PathBuf, PathBuf) {
    let home = folder(test);
    let repository = home.join("hub/models--tiny--demo");
    let snapshot = repository.join("snapshots").join(SHA);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), SHA).unwrap();
    for (file, content) in demo::checkpoint::DEMO.files() {
        std::fs::write(snapshot.join(file), content).unwrap();
    }
    (home, snapshot)
}

/// A local server in place of the Hub, with the requests that it received.
struct Hub {
    endpoint: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    /// `answer` gets the request's head and returns the response.
    fn start(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream: TcpStream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> = lines
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let head = head.join("\n");
                let response = answer(&head);
                seen.lock().unwrap().push(head);
                // A client may close the connection early.
                let _ = stream.write_all(&response);
            }
        });
        Self { endpoint, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn status(line: &str) -> Vec<u8> {
    format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The answer to a request for a file of `tiny/demo` or for its list of files.
fn tiny(head: &str) -> Vec<u8> {
    let files = demo::checkpoint::DEMO.files();
    let others = ["README.md", "pytorch_model.bin", "../config.json"];
    let others = others.map(|name| (name, &b""[..]));
    repository(head, &files.chain(others).collect::<Vec<_>>())
}

/// The answer to a request for one of `files` of `tiny/demo` or for their list. An empty file is
/// listed only.
fn repository(head: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    let path = head.split(' ').nth(1).unwrap();
    let respond = |more: String, body: &[u8]| {
        let length = body.len();
        let head = format!("{more}Content-Length: {length}\r\nConnection: close\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    if path == "/api/models/tiny/demo/revision/main" {
        let files: Vec<_> = files
            .iter()
            .map(|(name, _)| json!({"rfilename": name}))
            .collect();
        let body = json!({"siblings": files, "sha": SHA}).to_string();
        return respond("HTTP/1.1 200 OK\r\n".to_owned(), body.as_bytes());
    }
    let asked = path.strip_prefix(&format!("/tiny/demo/resolve/{SHA}/"));
    let stored = |(name, content): &&(&str, &[u8])| asked == Some(name) && !content.is_empty();
    let Some((file, content)) = files.iter().find(stored) else {
        return status("404 Not Found");
    };
    let lines = head.lines().map(str::to_ascii_lowercase);
    let range = lines.into_iter().find_map(|line| {
        let range = line.strip_prefix("range: bytes=")?.to_owned();
        let (from, to) = range.split_once('-')?;
        let to = to.parse().unwrap_or(content.len() - 1);
        Some((from.parse::<usize>().unwrap(), to))
    });
    // Any name of 40 digits that differs between files.
    let name = file.bytes().fold(0, |name: u64, byte| {
        name.wrapping_mul(257).wrapping_add(byte.into())
    });
    let meta = format!("ETag: \"{name:040x}\"\r\nX-Repo-Commit: {SHA}\r\n");
    let Some((from, to)) = range else {
        return respond(format!("HTTP/1.1 200 OK\r\n{meta}"), content);
    };
    let length = content.len();
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\n{meta}Content-Range: bytes {from}-{to}/{length}\r\n"
    );
    respond(head, &content[from..=to])
}

#[test]
fn a_cached_model_is_loaded_offline() {
    let (home, snapshot) = cache("hub-cached");
    let offline = [("HF_HUB_OFFLINE", "1")];
    for model in ["tiny/demo".to_owned(), format!("tiny/demo@{SHA}")] {
        let text = stdout(&inspect(&model, &home, &offline));
        assert!(text.contains("family           llada"), "{text}");
    }
    let message = refusal(&inspect("tiny/demo@v2", &home, &offline), 66);
    assert!(message.contains("revision v2 not found in"), "{message}");
    std::fs::remove_file(snapshot.join("model.safetensors")).unwrap();
    let message = refusal(&inspect("tiny/demo", &home, &offline), 66);
    assert!(
        message.contains("model.safetensors not found in"),
        "{message}"
    );
}

#[test]
fn a_cache_in_another_folder_is_found() {
    let (home, _) = cache("hub-elsewhere");
    let cache = home.join("hub");
    let variables = [
        ("HF_HUB_OFFLINE", "true"),
        ("HF_HUB_CACHE", cache.to_str().expect("the path is UTF-8")),
    ];
    stdout(&inspect("tiny/demo", &folder("hub-empty-home"), &variables));
}

#[test]
fn a_model_that_is_not_cached_is_refused_offline() {
    let home = folder("hub-offline");
    let message = refusal(&inspect("tiny/demo", &home, &[("HF_HUB_OFFLINE", "1")]), 66);
    for part in [
        "tiny/demo: no such folder",
        "HF_HUB_OFFLINE",
        "revision main not found",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_folder_wins_over_an_id() {
    let (home, snapshot) = cache("hub-folder");
    std::fs::create_dir(home.join("tiny")).unwrap();
    std::fs::rename(snapshot, home.join("tiny/demo")).unwrap();
    stdout(&inspect("tiny/demo", &home, &[("HF_HUB_OFFLINE", "1")]));
    let hub = Hub::start(tiny);
    stdout(&inspect(
        "tiny/demo",
        &home,
        &[("HF_ENDPOINT", &hub.endpoint)],
    ));
    assert!(hub.requests().is_empty());
}

#[test]
fn a_model_that_the_hub_does_not_show_is_refused() {
    let home = folder("hub-refused");
    for (line, code, parts) in [
        (
            "404 Not Found",
            66,
            ["tiny/demo: no such folder", "no revision main of it"],
        ),
        ("401 Unauthorized", 66, ["status 401", "HF_TOKEN"]),
        ("403 Forbidden", 66, ["status 403", "HF_TOKEN"]),
        (
            "503 Service Unavailable",
            69,
            ["tiny/demo: http", "status 503"],
        ),
    ] {
        let hub = Hub::start(move |_| status(line));
        let message = refusal(
            &inspect("tiny/demo", &home, &[("HF_ENDPOINT", &hub.endpoint)]),
            code,
        );
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(hub.requests().len(), 1);
    }
    let hub = Hub::start(|_| {
        let body =
            format!(r#"{{"siblings": [{{"rfilename": "pytorch_model.bin"}}], "sha": "{SHA}"}}"#);
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
            .into()
    });
    let message = refusal(
        &inspect("tiny/demo", &home, &[("HF_ENDPOINT", &hub.endpoint)]),
        65,
    );
    assert!(message.contains("expected model.safetensors"), "{message}");
    assert!(message.contains("found pytorch_model.bin"), "{message}");
}

#[test]
fn an_unsupported_architecture_is_named_before_missing_weights() {
    let config = r#"{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}"#;
    let hub = Hub::start(move |head| {
        let length = config.len();
        match head.contains("/resolve/") {
            true => format!(
                "HTTP/1.1 200 OK\r\nETag: \"{SHA}\"\r\nX-Repo-Commit: {SHA}\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n{config}"
            ),
            false => {
                let body = json!({"siblings": [{"rfilename": "pytorch_model.bin"},
                    {"rfilename": "config.json"}], "sha": SHA})
                .to_string();
                let length = body.len();
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                )
            }
        }
        .into_bytes()
    });
    let home = folder("hub-architecture");
    let message = refusal(
        &inspect("tiny/demo", &home, &[("HF_ENDPOINT", &hub.endpoint)]),
        65,
    );
    assert!(message.contains("found [\"GPT2LMHeadModel\"]"), "{message}");
    assert!(!message.contains("safetensors"), "{message}");
}

#[test]
fn without_a_network_only_the_cache_is_read() {
    // Bound and released: a free port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let variables = [("HF_ENDPOINT", endpoint.as_str())];
    let output = inspect("tiny/demo", &folder("hub-no-network"), &variables);
    let message = refusal(&output, 69);
    for part in [
        format!("not downloaded from {endpoint}"),
        "give the folder of a copy".to_owned(),
        "hub-no-network/hub and set HF_HUB_OFFLINE=1".to_owned(),
    ] {
        assert!(message.contains(&part), "{part} in {message}");
    }
    let output = inspect("tiny/demo", &cache("hub-cache-only").0, &variables);
    stdout(&output);
    let warning = stderr(&output);
    assert!(
        warning.starts_with("warning: tiny/demo") && warning.lines().count() == 1,
        "{warning}"
    );
}

#[test]
fn a_download_takes_what_a_checkpoint_needs_and_stays() {
    let home = folder("hub-download");
    let hub = Hub::start(tiny);
    let token = ("HF_TOKEN", "canary");
    let variables = [("HF_ENDPOINT", &*hub.endpoint), token];
    let described = inspect("tiny/demo", &home, &variables);
    let text = stdout(&described);
    assert!(text.contains("family           llada"), "{text}");
    assert!(text.contains("weights          not downloaded"), "{text}");
    let is_weights = |head: &String| head.contains("model.safetensors");
    assert!(!hub.requests().iter().any(is_weights));
    let output = generate("tiny/demo", &home, &variables);
    stdout(&output);
    assert!(!stderr(&output).contains("canary"));
    let requests = hub.requests();
    for head in &requests {
        assert!(
            head.to_ascii_lowercase()
                .contains("authorization: bearer canary"),
            "{head}"
        );
    }
    for (file, asked) in [
        ("config.json", true),
        ("model.safetensors", true),
        ("tokenizer.json", true),
        ("README.md", false),
        ("pytorch_model.bin", false),
        ("..", false),
    ] {
        let path = format!("/resolve/{SHA}/{file}");
        assert_eq!(
            requests.iter().any(|head| head.contains(&path)),
            asked,
            "{file}"
        );
    }
    // A second run requests only the list of files; offline, a third requests nothing.
    stdout(&inspect(
        "tiny/demo",
        &home,
        &[("HF_ENDPOINT", &hub.endpoint)],
    ));
    assert_eq!(hub.requests().len(), requests.len() + 1);
    stdout(&inspect("tiny/demo", &home, &[("HF_HUB_OFFLINE", "1")]));
}

#[test]
fn a_gguf_file_is_downloaded_by_a_part_of_its_name() {
    let home = folder("hub-gguf");
    let file = gguf::write("hub-gguf-source", "gpt-2");
    let content = std::fs::read(file).expect("the file is written");
    let hub = Hub::start(move |head| {
        let files = [("tiny-Q8_0.gguf", &content[..]), ("tiny-Q4_K_M.gguf", b"")];
        repository(head, &files)
    });
    let online = [("HF_ENDPOINT", hub.endpoint.as_str())];
    let text = stdout(&inspect("tiny/demo:q8_0", &home, &online));
    assert!(text.contains("family           qwen2"), "{text}");
    let asked = hub.requests();
    assert!(asked.iter().all(|head| !head.contains("Q4_K_M")));
    stdout(&inspect(
        "tiny/demo:Q8_0",
        &home,
        &[("HF_HUB_OFFLINE", "1")],
    ));
    let message = refusal(&inspect("tiny/demo", &home, &online), 65);
    assert!(
        message.contains("give one of its GGUF files as tiny/demo:FILE"),
        "{message}"
    );
    let message = refusal(
        &inspect("tiny/demo:Q5", &home, &[("HF_HUB_OFFLINE", "1")]),
        66,
    );
    assert!(
        message.contains("no GGUF file Q5; there are tiny-Q8_0.gguf in"),
        "{message}"
    );
}
