//! A Hub that lies, stalls and breaks off, and other processes on the same cache.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use ureq::tls::RootCerts;

use crate::hub::http::{Client, Fault, Timeouts, hex};
use crate::hub::store::{PART, Source, Store};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const NAME: &str = "model.safetensors";
/// Much longer than a local answer takes, and short enough to wait for.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(5),
    silence: Duration::from_secs(2),
    pause: Duration::from_millis(10),
};

/// A local server whose answers are written by a closure; with the heads of the requests.
struct Hub {
    endpoint: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream: TcpStream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> =
                    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let head = head.join("\n").to_ascii_lowercase();
                seen.lock().unwrap().push(head.clone());
                answer(&head, &mut stream);
            }
        });
        Self { endpoint, heads }
    }

    /// A hub that answers every request alike.
    fn fixed(head: &str, body: &[u8]) -> Self {
        let all = [head.as_bytes(), b"connection: close\r\n\r\n", body].concat();
        Self::start(move |_, stream| write(stream, &all))
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// The client may close the connection early.
fn write(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// An empty cache and the folder above it, in which nothing else may appear.
struct TempFolder {
    folder: PathBuf,
    said: RefCell<Vec<String>>,
}

impl TempFolder {
    fn new(test: &str) -> Self {
        let name = format!("asynclane-hub-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("cache")).unwrap();
        Self { folder, said: RefCell::default() }
    }

    fn cache(&self) -> PathBuf {
        self.folder.join("cache")
    }

    fn blobs(&self) -> PathBuf {
        self.cache().join("models--a--b/blobs")
    }

    fn fetch(&self, endpoint: &str, token: Option<&str>) -> Result<Vec<u8>, Fault> {
        self.fetch_as(NAME, endpoint, token)
    }

    fn fetch_as(&self, name: &str, endpoint: &str, token: Option<&str>) -> Result<Vec<u8>, Fault> {
        let cache = self.cache();
        let say = |line: &str| self.said.borrow_mut().push(line.to_owned());
        let mut store = Store::new(&cache, "a/b", &say);
        store.notice = Duration::from_millis(200);
        let token = token.map(str::to_owned);
        let client = Client::new(endpoint, token, RootCerts::WebPki, TIMEOUTS);
        let source = Source {
            client: &client,
            path: &format!("/a/b/resolve/{COMMIT}/{name}"),
            commit: COMMIT,
            name,
        };
        store.fetch(source, &|_, _| {})?;
        Ok(fs::read(store.snapshot(COMMIT).join(name)).unwrap())
    }

    /// The refusal of a file, of which nothing is kept.
    fn refused(&self, endpoint: &str) -> String {
        let reason = match self.fetch(endpoint, None) {
            Err(Fault::Refused(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let kept: Vec<PathBuf> = files(&self.folder)
            .into_iter()
            .filter(|path| path.extension().is_none_or(|end| end != "lock"))
            .collect();
        assert!(kept.is_empty(), "{kept:?}");
        assert!(!reason.contains(['\n', '\u{1b}']), "{reason}");
        reason
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// All files and links below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

fn content() -> Vec<u8> {
    (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
}

fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// The head of a whole file.
fn head(etag: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\nContent-Length: {length}\r\n"
    )
}

/// The head of a file of `length` bytes from the byte on that is asked for, and that byte.
fn head_and_start(request: &str, etag: &str, length: usize) -> (String, usize) {
    let start = request.lines().find_map(|line| {
        let range = line.strip_prefix("range: bytes=")?;
        range.strip_suffix('-')?.parse::<usize>().ok()
    });
    let head = match start {
        None => head(etag, length),
        Some(start) => format!(
            "HTTP/1.1 206 Partial Content\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\n\
             Content-Range: bytes {start}-{}/{length}\r\nContent-Length: {}\r\n",
            length - 1,
            length - start
        ),
    };
    (format!("{head}Connection: close\r\n\r\n"), start.unwrap_or(0))
}

/// Serves `content` under `etag`, from the byte that is asked for.
fn serve(request: &str, stream: &mut TcpStream, etag: &str, content: &[u8]) {
    let (head, start) = head_and_start(request, etag, content.len());
    write(stream, &[head.as_bytes(), &content[start..]].concat());
}

#[test]
fn a_name_that_is_a_path_writes_nothing() {
    let folder = TempFolder::new("names");
    let victim = folder.folder.join("victim");
    let absolute = victim.to_str().unwrap();
    for etag in ["../../../../victim", absolute, "/", "", "x", &"g".repeat(64)] {
        let hub = Hub::fixed(&head(etag, 3), b"bad");
        let reason = folder.refused(&hub.endpoint);
        assert!(reason.starts_with("ETag: expected 40 or 64 hex"), "{reason}");
    }
    for commit in ["../../../victim", absolute, "", &"0".repeat(40)] {
        let etag = sha256(b"bad");
        let head = format!(
            "HTTP/1.1 200 OK\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {commit}\r\nContent-Length: 3\r\n"
        );
        let reason = folder.refused(&Hub::fixed(&head, b"bad").endpoint);
        assert!(reason.starts_with("X-Repo-Commit: expected 0123"), "{reason}");
    }
}

#[test]
fn a_token_goes_to_its_own_host_only() {
    let folder = TempFolder::new("token");
    let (body, etag) = (content(), sha256(&content()));
    let (stored, name) = (body.clone(), etag.clone());
    let other = Hub::start(move |head, stream| serve(head, stream, &name, &stored));
    let target = other.endpoint.clone();
    let hub = Hub::start(move |head, stream| {
        // First to another path of the same host, then to another one.
        let (location, linked) = match head.starts_with("get /moved") {
            true => (format!("{target}/file"), String::new()),
            false => (
                "/moved".to_owned(),
                format!("X-Linked-Etag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\n"),
            ),
        };
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: {location}\r\n{linked}Content-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        write(stream, answer.as_bytes());
    });
    assert_eq!(folder.fetch(&hub.endpoint, Some("canary")).unwrap(), body);
    let sent =
        |hub: &Hub| hub.heads().iter().map(|head| head.contains("canary")).collect::<Vec<_>>();
    assert_eq!(sent(&hub), [true, true]);
    assert_eq!(sent(&other), [false]);
}

#[test]
fn redirects_are_followed_ten_times_and_only_to_addresses() {
    let folder = TempFolder::new("redirects");
    let redirect =
        |location: &str| format!("HTTP/1.1 302 Found\r\n{location}Content-Length: 0\r\n");
    let hub = Hub::fixed(&redirect("Location: /again\r\n"), b"");
    assert!(folder.refused(&hub.endpoint).contains("at most 10 redirects"));
    assert_eq!(hub.heads().len(), 11);
    for location in ["", "Location: file:///etc/passwd\r\n", "Location: x y\r\n"] {
        let reason = folder.refused(&Hub::fixed(&redirect(location), b"").endpoint);
        assert!(reason.starts_with("Location: expected the address"), "{reason}");
    }
}

#[test]
fn wrong_bytes_are_fetched_again_once_and_then_named() {
    let folder = TempFolder::new("bytes");
    let good = content();
    let etag = sha256(&good);
    let mut bad = good.clone();
    bad[77] ^= 1;
    let (name, wrong) = (etag.clone(), bad.clone());
    let liar = Hub::start(move |head, stream| serve(head, stream, &name, &wrong));
    let reason = folder.refused(&liar.endpoint);
    let expected = format!("{NAME}: expected SHA-256 {etag}, found ");
    assert!(reason.starts_with(&expected), "{reason}");
    assert_eq!(liar.heads().len(), 2);

    // The second time the bytes are right.
    let asked = Mutex::new(0);
    let (name, right) = (etag.clone(), good.clone());
    let hub = Hub::start(move |head, stream| {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        serve(head, stream, &name, if *asked == 1 { &bad } else { &right });
    });
    assert_eq!(folder.fetch(&hub.endpoint, None).unwrap(), good);
    assert_eq!(files(&folder.blobs()), [folder.blobs().join(&etag)]);
}

#[test]
fn a_transfer_that_breaks_off_goes_on_and_is_checked_as_a_whole() {
    let good = content();
    let etag = sha256(&good);
    let broken_off = {
        let (name, all) = (etag.clone(), good.clone());
        Hub::start(move |request, stream| match request.contains("range:") {
            true => serve(request, stream, &name, &all),
            false => {
                let head = format!("{}Connection: close\r\n\r\n", head(&name, all.len()));
                write(stream, &[head.as_bytes(), &all[..100_000]].concat());
            }
        })
    };
    let folder = TempFolder::new("resumed");
    assert_eq!(folder.fetch(&broken_off.endpoint, None).unwrap(), good);
    assert_eq!(broken_off.heads().len(), 2);

    // A part of another run with a flipped bit, and one that is longer than the file.
    for flipped in [true, false] {
        let folder = TempFolder::new("flipped");
        fs::create_dir_all(folder.blobs()).unwrap();
        let mut part = good[..100_000].to_vec();
        part[5] ^= 1;
        if !flipped {
            part.resize(good.len() + 1, 0);
        }
        fs::write(folder.blobs().join(format!("{etag}.incomplete")), part).unwrap();
        let (name, all) = (etag.clone(), good.clone());
        let hub = Hub::start(move |head, stream| serve(head, stream, &name, &all));
        assert_eq!(folder.fetch(&hub.endpoint, None).unwrap(), good, "{flipped}");
    }
}

/// Connections that are cut after some bytes bring the whole file, however many there are.
#[test]
fn a_transfer_goes_on_as_long_as_bytes_come() {
    let good = content();
    let (etag, all) = (sha256(&good), good.clone());
    let name = etag.clone();
    let hub = Hub::start(move |request, stream| {
        let (head, start) = head_and_start(request, &name, all.len());
        let end = all.len().min(start + 100_000);
        write(stream, &[head.as_bytes(), &all[start..end]].concat());
    });
    let folder = TempFolder::new("cut");
    assert_eq!(folder.fetch(&hub.endpoint, None).unwrap(), good);
    assert_eq!(hub.heads().len(), 8);
}

/// A Hub that is busy is asked again, but not for ever, and not after an hour.
#[test]
fn a_busy_hub_is_asked_again() {
    let good = content();
    let etag = sha256(&good);
    for (line, times, asked) in [
        ("429 Too Many Requests\r\nRetry-After: 0", 1, Ok(2)),
        ("503 Service Unavailable", 3, Ok(4)),
        ("503 Service Unavailable\r\nX-Error-Message: Later.", 9, Err((503, 4))),
        ("429 Too Many Requests\r\nRetry-After: 3600", 9, Err((429, 1))),
        ("410 Gone", 9, Err((410, 1))),
    ] {
        let (name, all, seen) = (etag.clone(), good.clone(), Mutex::new(0));
        let hub = Hub::start(move |request, stream| {
            let mut seen = seen.lock().unwrap();
            *seen += 1;
            match *seen <= times {
                true => write(
                    stream,
                    format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        .as_bytes(),
                ),
                false => serve(request, stream, &name, &all),
            }
        });
        let folder = TempFolder::new("busy");
        match (folder.fetch(&hub.endpoint, None), asked) {
            (Ok(found), Ok(asked)) => {
                assert_eq!(found, good);
                assert_eq!(hub.heads().len(), asked, "{line}");
            }
            (Err(Fault::Status(status, said)), Err((expected, asked))) => {
                assert_eq!((status, hub.heads().len()), (expected, asked), "{line}");
                assert_eq!(said, if status == 503 { "Later." } else { "" });
            }
            (found, _) => panic!("{line}: {found:?}"),
        }
    }
}

/// As the Hub answers for a repository's old name: the second answer describes the file.
#[test]
fn a_renamed_repository_is_followed() {
    let good = content();
    let (etag, all) = (sha256(&good), good.clone());
    let hub = Hub::start(move |request, stream| match request.starts_with("get /a/b/") {
        true => {
            let head = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: /a/new/resolve/{COMMIT}/{NAME}\r\n"
            );
            write(
                stream,
                format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").as_bytes(),
            );
        }
        false => serve(request, stream, &etag, &all),
    });
    let folder = TempFolder::new("renamed");
    assert_eq!(folder.fetch(&hub.endpoint, Some("canary")).unwrap(), good);
    assert!(hub.heads()[1].contains("authorization: bearer canary"));
}

#[test]
fn short_long_and_endless_files_are_refused() {
    let folder = TempFolder::new("sizes");
    let etag = "a".repeat(40);
    let linked = |size: usize| format!("{}X-Linked-Size: {size}\r\n", head(&etag, 3));
    let reason = folder.refused(&Hub::fixed(&linked(4), b"abc").endpoint);
    assert!(reason.starts_with("X-Linked-Size: expected 3"), "{reason}");
    let endless = format!("HTTP/1.1 200 OK\r\nETag: \"{etag}\"\r\nTransfer-Encoding: chunked\r\n");
    let reason = folder.refused(&Hub::fixed(&endless, b"3\r\nabc\r\n0\r\n\r\n").endpoint);
    assert!(reason.starts_with("Content-Length: expected a size, found none"), "{reason}");
    // Ends early, again and again.
    let short = Hub::fixed(&head(&etag, 10), b"abc");
    let fault = folder.fetch(&short.endpoint, None).unwrap_err();
    assert!(matches!(fault, Fault::Network(_) | Fault::Refused(_)), "{fault:?}");
    assert!(!folder.blobs().join(&etag).exists());
}

/// The part is a link to a device that has no room.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_fills_during_a_download_is_said() {
    let folder = TempFolder::new("full");
    let body = vec![b'x'; 1 << 16];
    let etag = hex(&Sha256::digest(&body));
    let hub = Hub::fixed(&head(&etag, body.len()), &body);
    fs::create_dir_all(folder.blobs()).unwrap();
    let part = folder.blobs().join(format!("{etag}.{PART}"));
    std::os::unix::fs::symlink("/dev/full", &part).unwrap();
    match folder.fetch(&hub.endpoint, None).unwrap_err() {
        Fault::Disk(error) => assert_eq!(error.kind(), std::io::ErrorKind::StorageFull),
        other => panic!("{other:?}"),
    }
    // With room again, the download goes on.
    fs::remove_file(&part).unwrap();
    assert_eq!(folder.fetch(&hub.endpoint, None).unwrap(), body);
}

#[test]
fn a_hub_that_says_nothing_is_given_up() {
    let folder = TempFolder::new("stalls");
    let streams = Mutex::new(Vec::new());
    let hub = Hub::start(move |_, stream| {
        // Stays open and silent.
        streams.lock().unwrap().push(stream.try_clone().unwrap());
    });
    let begin = Instant::now();
    let fault = folder.fetch(&hub.endpoint, None).unwrap_err();
    assert!(matches!(fault, Fault::Network(_)), "{fault:?}");
    assert!(begin.elapsed() < 10 * TIMEOUTS.silence, "{:?}", begin.elapsed());

    let streams = Mutex::new(Vec::new());
    let hub = Hub::start(move |_, stream| {
        let head = format!("{}\r\n", head(&"b".repeat(40), 10));
        write(stream, &[head.as_bytes(), b"abc"].concat());
        streams.lock().unwrap().push(stream.try_clone().unwrap());
    });
    let begin = Instant::now();
    let fault = folder.fetch(&hub.endpoint, None).unwrap_err();
    assert!(matches!(fault, Fault::Network(_)), "{fault:?}");
    assert!(begin.elapsed() < 20 * TIMEOUTS.silence, "{:?}", begin.elapsed());
}

#[test]
fn a_second_process_waits_for_the_first_and_says_so() {
    let folder = TempFolder::new("lock");
    let (body, etag) = (content(), sha256(&content()));
    let (name, all) = (etag.clone(), body.clone());
    let hub = Hub::start(move |head, stream| serve(head, stream, &name, &all));
    let locks = folder.cache().join(".locks/models--a--b");
    fs::create_dir_all(&locks).unwrap();
    let lock = fs::File::create(locks.join(format!("{etag}.lock"))).unwrap();
    lock.lock().unwrap();
    let until = Duration::from_secs(1);
    let begin = Instant::now();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(until);
        drop(lock);
    });
    assert_eq!(folder.fetch(&hub.endpoint, None).unwrap(), body);
    assert!(begin.elapsed() >= until);
    holder.join().unwrap();
    let said = folder.said.borrow();
    let line = format!("waiting for another process that downloads {NAME}: ");
    assert!(said.len() >= 2 && said[0].starts_with(&line), "{said:?}");
}

#[test]
fn the_layout_is_the_one_of_the_python_package() {
    let folder = TempFolder::new("layout");
    let etag = "c".repeat(40);
    let hub = Hub::fixed(&head(&etag, 2), b"{}");
    assert_eq!(folder.fetch(&hub.endpoint, None).unwrap(), b"{}");
    let repository = folder.cache().join("models--a--b");
    let mut found = files(&repository);
    found.sort();
    let link = repository.join("snapshots").join(COMMIT).join(NAME);
    assert_eq!(found, [repository.join("blobs").join(&etag), link.clone()]);
    #[cfg(unix)]
    assert_eq!(fs::read_link(link).unwrap(), Path::new(&format!("../../blobs/{etag}")));
    // The name of a file in a folder, read through its link.
    let template = "additional_chat_templates/tool_use.jinja";
    let nested = folder.fetch_as(template, &hub.endpoint, None);
    assert_eq!(nested.unwrap(), b"{}");
    let say = |_: &str| {};
    let cache = folder.cache();
    let store = Store::new(&cache, "a/b", &say);
    store.put_commit("refs/pr/1", COMMIT).unwrap();
    // Nothing is written twice: another process may read it, and the disk may be read-only.
    let kept =
        [repository.join("refs/refs/pr/1"), repository.join("snapshots").join(COMMIT).join(NAME)];
    let times =
        || kept.each_ref().map(|path| fs::symlink_metadata(path).unwrap().modified().unwrap());
    let before = times();
    std::thread::sleep(Duration::from_millis(20));
    store.put_commit("refs/pr/1", COMMIT).unwrap();
    folder.fetch(&hub.endpoint, None).unwrap();
    assert_eq!(times(), before);
    store.put_commit(COMMIT, COMMIT).unwrap();
    assert_eq!(store.commit_of("refs/pr/1").as_deref(), Some(COMMIT));
    assert_eq!(store.commit_of(COMMIT), None);
    fs::write(repository.join("refs/main"), "../../../x").unwrap();
    assert_eq!(store.commit_of("main"), None);
}
