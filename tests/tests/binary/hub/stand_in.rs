//! A local server in place of the Hub.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

/// The commit of every repository.
pub const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

/// A local server in place of the Hub, with the requests that it received.
pub struct Hub {
    pub endpoint: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    /// `answer` gets the request's head and returns the response.
    pub fn start(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream: TcpStream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let lines = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
                let head = lines.collect::<Vec<_>>().join("\n");
                let response = answer(&head);
                seen.lock().unwrap().push(head);
                // A client may close the connection early.
                let _ = stream.write_all(&response);
            }
        });
        Self { endpoint, requests }
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

pub fn status(line: &str) -> Vec<u8> {
    response(line, "", b"")
}

/// A response with these lines among its headers.
fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// A file of a repository.
#[derive(Clone, Copy)]
pub struct File<'a> {
    name: &'a str,
    /// Nothing is sent of a file that is only listed.
    content: Option<&'a [u8]>,
    size: Option<u64>,
}

impl<'a> File<'a> {
    pub fn new(name: &'a str, content: &'a [u8]) -> Self {
        Self { name, content: Some(content), size: Some(content.len() as u64) }
    }

    /// A file that is listed without a size and not there.
    pub fn listed(name: &'a str) -> Self {
        Self { name, content: None, size: None }
    }

    /// A file that is listed with a size and not there.
    pub fn sized(name: &'a str, size: u64) -> Self {
        Self { size: Some(size), ..Self::listed(name) }
    }
}

/// The answer to a request for a file of `tiny/demo` or for its list of files.
pub fn tiny(head: &str) -> Vec<u8> {
    let files = demo::checkpoint::DEMO.files().map(|(name, content)| File::new(name, content));
    let others = ["README.md", "pytorch_model.bin", "../config.json"].map(File::listed);
    repository(head, &files.chain(others).collect::<Vec<_>>())
}

/// The answer to a request for one of `files` of `tiny/demo` or for their list.
pub fn repository(head: &str, files: &[File<'_>]) -> Vec<u8> {
    let path = head.split(' ').nth(1).unwrap();
    if path == "/api/models/tiny/demo/revision/main?blobs=true" {
        let files = files.iter().map(|file| json!({"rfilename": file.name, "size": file.size}));
        let body = json!({"siblings": files.collect::<Vec<_>>(), "sha": SHA});
        return response("200 OK", "", body.to_string().as_bytes());
    }
    let asked = path.strip_prefix(&format!("/tiny/demo/resolve/{SHA}/"));
    let found = files.iter().find(|file| asked == Some(file.name));
    let Some((file, content)) = found.and_then(|file| Some((file.name, file.content?))) else {
        return status("404 Not Found");
    };
    let lines = head.lines().map(str::to_ascii_lowercase);
    let range = lines.into_iter().find_map(|line| {
        let range = line.strip_prefix("range: bytes=")?.to_owned();
        let (start, end) = range.split_once('-')?;
        let end = end.parse().unwrap_or(content.len() - 1);
        Some((start.parse::<usize>().unwrap(), end))
    });
    // Any name of 40 digits that differs between files.
    let name =
        file.bytes().fold(0, |name: u64, byte| name.wrapping_mul(257).wrapping_add(byte.into()));
    let meta = format!("ETag: \"{name:040x}\"\r\nX-Repo-Commit: {SHA}\r\n");
    let Some((start, end)) = range else {
        return response("200 OK", &meta, content);
    };
    let length = content.len();
    let range = format!("{meta}Content-Range: bytes {start}-{end}/{length}\r\n");
    response("206 Partial Content", &range, &content[start..=end])
}
