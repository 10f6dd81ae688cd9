//! Checkpoints by their id on the Hugging Face Hub.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;
use model::{Checkpoint, Files};
use ureq::tls::RootCerts;

use crate::memory::size;
use crate::names::{escaped, without_password};
use crate::{exit, files};
use http::{Client, Fault, Timeouts, roots};
use id::{Id, alone, shards};
use remote::{Remote, list, shards_of};
use store::Store;

mod http;
mod id;
mod inventory;
mod links;
mod remote;
mod store;

pub use inventory::{Cache, CachedModel, Revision};

/// The Hub's address if `HF_ENDPOINT` is not set.
const ENDPOINT: &str = "https://huggingface.co";
const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The weights of an adapter, which is no model.
const ADAPTER: &str = "adapter_model.safetensors";
const GGUF: &str = ".gguf";
/// The first bytes of every GGUF file.
const GGUF_START: &[u8; 4] = b"GGUF";
/// Optional files, read beside configuration and weights.
const OPTIONAL_FILES: [&str; 11] = [
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "vocab.json",
    "merges.txt",
];

/// The folder or GGUF file of a model: `path` itself, or where the Hub's files are if nothing exists
/// at `path` and it is an id or a short name. Missing files are downloaded.
///
/// # Errors
/// One line: no network, not found or private, offline and not cached, no safetensors, too little room on
/// the disk, a link that leads out of the folder.
pub fn folder(path: &str) -> Result<Cow<'_, str>> {
    Ok(locate(path, Selection::All)?.place)
}

/// As [`folder`], without weights that are not here: enough to describe a model of the Hub.
///
/// # Errors
/// As [`folder`].
pub fn description(path: &str) -> Result<Description<'_>> {
    locate(path, Selection::Description)
}

/// A model of which perhaps only the configuration is here.
#[derive(Debug)]
pub struct Description<'a> {
    /// The folder, or the GGUF file if it is here.
    pub place: Cow<'a, str>,
    /// The files of weights that are not here, if any.
    pub missing: Option<Missing>,
}

/// Files of weights that are not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Their bytes, if the Hub or the index says them.
    pub bytes: Option<u64>,
    /// True if they are GGUF files, which have the configuration inside.
    pub is_gguf: bool,
}

/// The files of a model that are downloaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Selection {
    All,
    /// All but weights.
    Description,
}

fn locate(path: &str, selection: Selection) -> Result<Description<'_>> {
    let id = match Id::of_model(path) {
        Some(id) => id,
        None => {
            let named = Path::new(path);
            match is_gguf(path) {
                true => links::check(named.parent().unwrap_or(Path::new(".")), Some(named))?,
                false => links::check(named, None)?,
            }
            return Ok(Description { place: Cow::Borrowed(path), missing: None });
        }
    };
    let hub = Hub::from_env(|name| std::env::var(name).ok())?;
    let (found, missing) = hub.snapshot(id, selection)?;
    let snapshot = match found.is_dir() {
        true => Some(&*found),
        false => found.parent(),
    };
    snapshot.map_or(Ok(()), |folder| links::check(folder, None))?;
    Ok(Description { place: Cow::Owned(found.to_string_lossy().into_owned()), missing })
}

/// Advice for files of `path` that cannot be read, if they lie in the Hub's cache.
pub fn advice(path: &str) -> String {
    match Id::of_model(path) {
        Some(_) => format!(
            "; if the cache is damaged, `asynclane models rm {path}` removes the model and the next start \
             downloads it again"
        ),
        None => String::new(),
    }
}

/// Checks that no link in `folder` leads out of it, as [`folder`] does.
///
/// # Errors
/// The first link, by name.
pub fn check_links(folder: &str) -> Result<()> {
    links::check(Path::new(folder), None)
}

/// True if `path` is a GGUF file, by the end of its name or by its first bytes, as for Ollama's files. Its
/// tokenizer is inside, or in the same folder.
pub fn is_gguf(path: &str) -> bool {
    // Opening a pipe waits for a writer.
    let is_file = Path::new(path).is_file();
    is_file && (path.ends_with(GGUF) || starts_as_gguf(Path::new(path)))
}

/// True if the file has the first bytes of a GGUF file.
fn starts_as_gguf(path: &Path) -> bool {
    let mut start = [0; GGUF_START.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *GGUF_START
}

/// True if a model is a release of LLaDA2.1, whose weights rewrite committed tokens. Its
/// configuration equals LLaDA2.0's: only the path or the id on the Hub tells.
pub fn is_editing_release(path: &str, family: &str) -> bool {
    family == "llada2" && path.to_lowercase().contains("llada2.1")
}

/// True if a model is a release of I-DLM, whose weights have SDAR's architecture and are strictly causal:
/// only the path or the id on the Hub tells.
pub fn is_introspective_release(path: &str) -> bool {
    path.to_lowercase().contains("i-dlm")
}

/// The default model name in requests: an id without its revision, the last part of a folder's path,
/// or a GGUF file's name without `.gguf`.
pub fn served_name(path: &str) -> Option<&OsStr> {
    match Id::parse(path) {
        Some(id) if !Path::new(path).exists() => Some(OsStr::new(id.name)),
        _ if path.ends_with(GGUF) && is_gguf(path) => Path::new(path).file_stem(),
        _ => Path::new(path).file_name(),
    }
}

/// The Hub's cache of this user.
///
/// # Errors
/// No home folder.
pub fn cache() -> Result<Cache> {
    Ok(Cache::read(Hub::from_env(|name| std::env::var(name).ok())?.cache))
}

/// Settings of the Hub in the environment.
struct Hub {
    cache: PathBuf,
    endpoint: String,
    token: Option<String>,
    /// A file of certificates that are trusted in place of the built-in ones.
    certificates: Option<PathBuf>,
    offline: bool,
}

impl Hub {
    /// Reads `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `SSL_CERT_FILE`.
    fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name| variable(name).filter(|value| !value.trim().is_empty());
        let home = match (set("HF_HOME"), set("XDG_CACHE_HOME")) {
            (Some(home), _) => PathBuf::from(home),
            (None, Some(cache)) => Path::new(&cache).join("huggingface"),
            (None, None) => match std::env::home_dir() {
                Some(home) => home.join(".cache/huggingface"),
                None => {
                    let message = "no home folder for the cache of the hub: set HF_HOME";
                    return Err(exit::failure(exit::NO_INPUT, message));
                }
            },
        };
        let stored = || std::fs::read_to_string(home.join("token")).ok();
        let token = set("HF_TOKEN").map(|token| token.trim().to_owned());
        let offline = set("HF_HUB_OFFLINE").map(|value| value.trim().to_ascii_lowercase());
        Ok(Self {
            token: token
                .or_else(|| stored().map(|token| token.trim().to_owned()))
                .filter(|token| !token.is_empty()),
            cache: set("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from),
            endpoint: set("HF_ENDPOINT").map_or_else(
                || ENDPOINT.to_owned(),
                |endpoint| endpoint.trim_end_matches('/').to_owned(),
            ),
            certificates: set("SSL_CERT_FILE").map(PathBuf::from),
            offline: offline
                .is_some_and(|value| ["1", "true", "yes", "on"].contains(&value.as_str())),
        })
    }

    /// The folder with the files of `id`, or its GGUF file, and the files that are not here.
    fn snapshot(&self, id: Id<'_>, selection: Selection) -> Result<(PathBuf, Option<Missing>)> {
        if !self.offline {
            return self.download(id, selection);
        }
        let cached = self.cached(id).map(|found| (found, None));
        cached.map_err(|missing| {
            let message = format!(
                "{}: no such folder, and HF_HUB_OFFLINE is set: {missing} in {}",
                id.name,
                self.cache.display()
            );
            exit::failure(exit::NO_INPUT, message)
        })
    }

    /// The cached folder or GGUF file of `id`, or the name of a missing file.
    fn cached(&self, id: Id<'_>) -> Result<PathBuf, String> {
        let store = self.store(id);
        // A commit has its own snapshot and no reference.
        let commit = store.commit_of(id.revision);
        let folder = store.snapshot(commit.as_deref().unwrap_or(id.revision));
        let names = names_in(&folder);
        if names.is_empty() {
            return Err(format!("revision {} not found", id.revision));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let has_gguf = names.iter().any(|name| name.ends_with(GGUF));
        if (id.file.is_some() || has_gguf)
            && let Some(file) = id.gguf(&names)?
        {
            return Ok(folder.join(file));
        }
        let lacks = |name: &str| Err(format!("{name} not found"));
        let missing = |name: &&str| !folder.join(name).is_file();
        if missing(&CONFIG) {
            return lacks(CONFIG);
        }
        if !missing(&WEIGHTS) {
            return Ok(folder);
        }
        if missing(&INDEX) {
            return alone(&names).map_or_else(|| lacks(WEIGHTS), |_| Ok(folder));
        }
        let shards = shards_of(&folder);
        match shards.iter().map(String::as_str).find(missing) {
            Some(shard) => lacks(shard),
            None => Ok(folder),
        }
    }

    fn store<'a>(&'a self, id: Id<'_>) -> Store<'a> {
        Store::new(&self.cache, id.name, &|line| say!("{line}"))
    }

    /// Downloads the files of `id` that the cache lacks.
    fn download(&self, id: Id<'_>, selection: Selection) -> Result<(PathBuf, Option<Missing>)> {
        let (token, patience) = (self.token.clone(), Timeouts::default());
        let client = Client::new(&self.endpoint, token, self.roots()?, patience);
        let listed = match list(&client, id) {
            Ok(listed) => listed,
            Err(fault) => {
                return match self.cached(id) {
                    Ok(folder) if is_absent(&fault) => {
                        say!("warning: {}: the cached files", self.reason(id, &fault));
                        Ok((folder, None))
                    }
                    _ => Err(self.refusal(id, &fault)),
                };
            }
        };
        let store = self.store(id);
        // All files come from one commit, even if the branch moves meanwhile.
        let folder = store.snapshot(&listed.sha);
        let remote = Remote { hub: self, client, store, id, listed, folder };
        let files = remote.files();
        let refused = |what| exit::failure(exit::CHECKPOINT, format!("{}: {what}", id.name));
        if id.file.is_none() && files.contains(&CONFIG) {
            remote.get(CONFIG)?;
            let files = Files::folder(&remote.folder);
            Checkpoint::check_architecture(&files).map_err(exit::refused)?;
        }
        let gguf = id.gguf(&files).map_err(refused)?;
        let others = OPTIONAL_FILES.iter().filter(|name| files.contains(*name));
        others.copied().try_for_each(|name| remote.get(name))?;
        let weights: Vec<String> = match gguf {
            Some(file) => shards(file, &files).into_iter().map(str::to_owned).collect(),
            None => remote.weights()?,
        };
        let missing = remote.missing(&weights, gguf.is_some());
        if selection == Selection::All {
            if let Some(bytes) = missing.and_then(|missing| missing.bytes) {
                self.check_disk(id, &remote.store, bytes)?;
            }
            weights.iter().try_for_each(|name| remote.get(name))?;
        }
        let kept = remote.store.put_commit(id.revision, &remote.listed.sha);
        kept.map_err(|error| self.refusal(id, &Fault::Disk(error)))?;
        let missing = missing.filter(|_| selection == Selection::Description);
        let place = match gguf {
            Some(file) if missing.is_none() => remote.folder.join(file),
            _ => remote.folder.clone(),
        };
        Ok((place, missing))
    }

    /// The certificates that the Hub's is checked with.
    fn roots(&self) -> Result<RootCerts> {
        let Some(path) = &self.certificates else {
            return Ok(RootCerts::WebPki);
        };
        let found = std::fs::read(path).map_err(|error| error.to_string());
        found.and_then(|pem| roots(&pem)).map_err(|error| {
            let path = path.display();
            exit::failure(exit::NO_INPUT, format!("SSL_CERT_FILE: {path}: {error}"))
        })
    }

    /// Refuses a download of `bytes` for which the cache's disk has too little room. Parts of earlier
    /// downloads count as room.
    fn check_disk(&self, id: Id<'_>, store: &Store<'_>, bytes: u64) -> Result<()> {
        let Some(free) = files::free_bytes(&self.cache) else {
            return Ok(());
        };
        let room = free.saturating_add(store.part_bytes());
        if bytes <= room {
            return Ok(());
        }
        let message = format!(
            "{}: {} to download, {} free in {}: free {} more, or set HF_HOME to a folder on another disk",
            id.name,
            size(bytes),
            size(free),
            self.cache.display(),
            size(bytes - room)
        );
        Err(exit::failure(exit::IO, message))
    }

    /// An error with one line and its exit code.
    fn refusal(&self, id: Id<'_>, fault: &Fault) -> anyhow::Error {
        let code = match fault {
            Fault::Disk(_) => exit::IO,
            Fault::Refused(_) => exit::CHECKPOINT,
            _ if is_refused(fault) => exit::NO_INPUT,
            Fault::Status(..) | Fault::Network(_) => exit::UNAVAILABLE,
        };
        let mut reason = self.reason(id, fault);
        match fault {
            Fault::Network(error) if error.contains("certificate") => {
                reason.push_str("; SSL_CERT_FILE names the certificates of a mirror or proxy");
            }
            Fault::Network(_) => {
                let cache = self.cache.display();
                reason.push_str(&format!(
                    "; without a network, give the folder of a copy (--model ./FOLDER), or put a copy of \
                     another machine's cache at {cache} and set HF_HUB_OFFLINE=1"
                ));
            }
            _ => {}
        }
        exit::failure(code, reason)
    }

    /// The reason in one line.
    fn reason(&self, id: Id<'_>, fault: &Fault) -> String {
        let (name, revision) = (id.name, id.revision);
        let endpoint = without_password(&self.endpoint);
        match fault {
            Fault::Status(404, _) => {
                format!("{name}: no such folder, and {endpoint} has no revision {revision} of it")
            }
            Fault::Status(status @ (401 | 403), said) => {
                let sent = match self.token {
                    Some(_) => ", which the one that was sent lacks",
                    None => "",
                };
                let said = quoted(said);
                format!(
                    "{name}: no such folder, and {endpoint} does not show it (status {status}{said}): it does \
                     not exist, or needs an HF_TOKEN with access{sent}"
                )
            }
            Fault::Status(status, said) => {
                format!("{name}: {endpoint} answered with status {status}{}", quoted(said))
            }
            Fault::Refused(what) => format!("{name}: the answer of {endpoint} is refused: {what}"),
            Fault::Disk(error) if error.kind() == std::io::ErrorKind::StorageFull => format!(
                "{name}: {}: {error}: make room and start again, the download goes on where it ended; or \
                 set HF_HOME to a folder on another disk",
                self.cache.display()
            ),
            Fault::Disk(error) => format!("{name}: {}: {error}", self.cache.display()),
            Fault::Network(error) => {
                let error = error.replace(&self.endpoint, &endpoint).replace('\n', " ");
                let error = escaped(&error, "");
                format!("{name}: no such folder, and not downloaded from {endpoint}: {error}")
            }
        }
    }
}

/// The names of the files in a folder, and those in its folders after a slash.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
    };
    let mut names = Vec::new();
    for name in entries(folder) {
        let inner = entries(&folder.join(&name)).map(|file| format!("{name}/{file}"));
        names.extend(inner);
        names.push(name);
    }
    names
}

/// True if the Hub cannot be asked now.
fn is_absent(fault: &Fault) -> bool {
    matches!(fault, Fault::Status(..) | Fault::Network(_)) && !is_refused(fault)
}

/// True if the Hub's status means that this user cannot see such a model.
fn is_refused(fault: &Fault) -> bool {
    matches!(fault, Fault::Status(401 | 403 | 404, _))
}

/// The Hub's reason, if it gave one.
fn quoted(said: &str) -> String {
    match said.trim() {
        "" => String::new(),
        said => format!(", {}", escaped(said, "")),
    }
}

#[cfg(test)]
mod tests;
