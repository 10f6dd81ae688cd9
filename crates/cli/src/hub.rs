//! Checkpoints by their id on the Hugging Face Hub.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};
use model::{Checkpoint, Files};

use crate::exit;

/// The Hub's address if `HF_ENDPOINT` is not set.
const ENDPOINT: &str = "https://huggingface.co";
/// The revision of an id without one.
const MAIN: &str = "main";
const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const GGUF: &str = ".gguf";
/// In the names of the files of a model that is split: `-00001-of-00003.gguf`.
const PART: &str = "-of-0";
/// Optional files, read beside configuration and weights.
const OTHERS: [&str; 8] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "vocab.json",
    "merges.txt",
];

/// `org/name` or `org/name@revision`, and perhaps `:FILE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id<'a> {
    name: &'a str,
    revision: &'a str,
    /// A GGUF file, or a part of its name such as `Q4_K_M`.
    file: Option<&'a str>,
}

impl<'a> Id<'a> {
    /// Parses `text`; `None` if it does not have the form of an id.
    fn parse(text: &'a str) -> Option<Self> {
        let (text, file) = match text.split_once(':') {
            Some((text, file)) => (text, Some(file)),
            None => (text, None),
        };
        let (name, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (organisation, model) = name.split_once('/')?;
        // A branch may contain slashes, but must not lead out of the cache folder.
        let revision_fits = revision.split('/').all(is_word);
        let fits = is_word(organisation) && is_word(model) && revision_fits;
        (fits && file.is_none_or(is_word)).then_some(Self {
            name,
            revision,
            file,
        })
    }

    /// The GGUF file among `files`: the one of the given name, or the only one that has the given
    /// part in its name. `None` if no file is given and there are safetensors.
    ///
    /// # Errors
    /// None or several of them; a model split over several files.
    fn gguf<'b>(&self, files: &[&'b str]) -> Result<Option<&'b str>, String> {
        let has_safetensors = files.contains(&WEIGHTS) || files.contains(&INDEX);
        if self.file.is_none() && has_safetensors {
            return Ok(None);
        }
        let all = files.iter().copied().filter(|file| file.ends_with(GGUF));
        let all: Vec<&str> = all.filter(|file| is_word(file)).collect();
        let wanted = self.file.unwrap_or_default();
        if let Some(named) = all.iter().find(|file| **file == wanted) {
            return Ok(Some(named));
        }
        let part = wanted.to_lowercase();
        let fitting = all
            .iter()
            .filter(|file| file.to_lowercase().contains(&part));
        let fitting: Vec<&str> = fitting.copied().collect();
        match fitting.as_slice() {
            [one] if !one.contains(PART) => Ok(Some(one)),
            [one, ..] if one.contains(PART) => Err(format!(
                "{one} is a part of a model; give a GGUF file of a whole model"
            )),
            [] if self.file.is_none() => {
                let found = files.iter().find(|file| !file.starts_with('.'));
                let found = found.map_or("nothing", |name| name);
                Err(format!(
                    "expected {WEIGHTS}, {INDEX} or a GGUF file, found {found}"
                ))
            }
            [] if all.is_empty() => Err(format!("no GGUF file {wanted}, nor any other")),
            [] => Err(format!(
                "no GGUF file {wanted}; there are {}",
                all.join(", ")
            )),
            several => {
                let (name, several) = (self.name, several.join(", "));
                Err(format!(
                    "give one of its GGUF files as {name}:FILE: {several}"
                ))
            }
        }
    }
}

/// Whether `part` can be an organisation or a name; `.` and `..` cannot.
fn is_word(part: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty() && part.chars().all(inner) && !part.starts_with(['.', '-']) && part != ".."
}

/// The folder or GGUF file of a model: `path` itself, or where the Hub's files are if nothing exists
/// at `path` and it is an id. Missing files are downloaded.
///
/// # Errors
/// One line: no network, not found or private, offline and not cached, no safetensors.
pub fn folder(path: &str) -> Result<Cow<'_, str>> {
    let id = match Id::parse(path) {
        Some(id) if !Path::new(path).exists() => id,
        _ => return Ok(Cow::Borrowed(path)),
    };
    let hub = Hub::from_env(|name| std::env::var(name).ok())?;
    let found = hub.snapshot(id)?;
    Ok(Cow::Owned(found.to_string_lossy().into_owned()))
}

/// Whether `path` is a GGUF file; its tokenizer is in the same folder.
pub fn is_gguf(path: &str) -> bool {
    path.ends_with(".gguf") && Path::new(path).is_file()
}

/// Whether a model is a release of LLaDA2.1, whose weights rewrite committed tokens. Its
/// configuration is that of LLaDA2.0: only the path or the id on the Hub tells.
pub fn is_editing_release(path: &str, family: &str) -> bool {
    family == "llada2" && path.to_lowercase().contains("llada2.1")
}

/// The default model name in requests: an id without its revision, the last part of a folder's path,
/// or a GGUF file's name without its extension.
pub fn served_name(path: &str) -> Option<&OsStr> {
    match Id::parse(path) {
        Some(id) if !Path::new(path).exists() => Some(OsStr::new(id.name)),
        _ if is_gguf(path) => Path::new(path).file_stem(),
        _ => Path::new(path).file_name(),
    }
}

/// Settings of the Hub in the environment.
struct Hub {
    cache: Cache,
    endpoint: String,
    token: Option<String>,
    offline: bool,
}

impl Hub {
    /// Reads `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_ENDPOINT` and `HF_HUB_OFFLINE`.
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
        let stored = Cache::new(home.join("hub"));
        let token = set("HF_TOKEN").map(|token| token.trim().to_owned());
        let offline = set("HF_HUB_OFFLINE").map(|value| value.trim().to_ascii_lowercase());
        Ok(Self {
            token: token.or_else(|| stored.token()),
            cache: set("HF_HUB_CACHE").map_or(stored, |folder| Cache::new(folder.into())),
            endpoint: set("HF_ENDPOINT").map_or_else(
                || ENDPOINT.to_owned(),
                |endpoint| endpoint.trim_end_matches('/').to_owned(),
            ),
            offline: offline.is_some_and(|on| ["1", "true", "yes", "on"].contains(&on.as_str())),
        })
    }

    /// The folder with the files of `id`, or its GGUF file.
    fn snapshot(&self, id: Id<'_>) -> Result<PathBuf> {
        if !self.offline {
            return self.download(id);
        }
        self.cached(id).map_err(|missing| {
            let message = format!(
                "{}: no such folder, and HF_HUB_OFFLINE is set: {missing} in {}",
                id.name,
                self.cache.path().display()
            );
            exit::failure(exit::NO_INPUT, message)
        })
    }

    /// The cached folder or GGUF file of `id`, or the name of a missing file.
    fn cached(&self, id: Id<'_>) -> Result<PathBuf, String> {
        let repository = self.cache.repo(repository(id));
        // The folder itself, by the reference. A commit has its own snapshot and no reference.
        let known = repository.get("");
        let folder = known.unwrap_or_else(|| repository.pointer_path(id.revision));
        let names = std::fs::read_dir(&folder).into_iter().flatten();
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: Vec<String> = names.collect();
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
            return lacks(WEIGHTS);
        }
        let shards = shards_of(&folder);
        match shards.iter().map(String::as_str).find(missing) {
            Some(shard) => lacks(shard),
            None => Ok(folder),
        }
    }

    /// Downloads the files of `id` that the cache lacks.
    fn download(&self, id: Id<'_>) -> Result<PathBuf> {
        let api = ApiBuilder::from_cache(self.cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_user_agent("asynclane", env!("CARGO_PKG_VERSION"))
            .with_retries(3)
            .build();
        let api = api.map_err(|error| self.refusal(id, &error))?;
        let info = match api.repo(repository(id)).info() {
            Ok(info) => info,
            Err(error) => {
                return match self.cached(id) {
                    Ok(folder) if !is_refused(&error) => {
                        say!("warning: {}: the cached files", self.reason(id, &error));
                        Ok(folder)
                    }
                    _ => Err(self.refusal(id, &error)),
                };
            }
        };
        let files: Vec<&str> = info.siblings.iter().map(|file| &*file.rfilename).collect();
        if !is_word(&info.sha) {
            let message = format!("{}: expected the name of a commit", id.name);
            return Err(exit::failure(exit::CHECKPOINT, message));
        }
        // All files come from one commit, even if the branch moves meanwhile.
        let commit = Id {
            revision: &info.sha,
            ..id
        };
        let folder = self.cache.repo(repository(commit)).pointer_path(&info.sha);
        let remote = api.repo(repository(commit));
        let get = |name: &str| -> Result<()> {
            if !folder.join(name).is_file() {
                let file = remote.download(name);
                file.map_err(|error| self.refusal(id, &error))?;
            }
            Ok(())
        };
        let listed = |name: &&&str| files.contains(*name);
        let refused = |what| exit::failure(exit::CHECKPOINT, format!("{}: {what}", id.name));
        if id.file.is_none() && files.contains(&CONFIG) {
            get(CONFIG)?;
            let files = Files::folder(&folder);
            Checkpoint::check_architecture(&files).map_err(exit::refused)?;
        }
        let gguf = id.gguf(&files).map_err(refused)?;
        let others = OTHERS.iter().filter(listed);
        others.copied().try_for_each(get)?;
        match gguf {
            Some(file) => get(file)?,
            None if files.contains(&WEIGHTS) => [CONFIG, WEIGHTS].into_iter().try_for_each(get)?,
            None => {
                [CONFIG, INDEX].into_iter().try_for_each(get)?;
                let shards = shards_of(&folder);
                shards.iter().try_for_each(|shard| get(shard))?;
            }
        }
        self.cache.repo(repository(id)).create_ref(&info.sha)?;
        Ok(gguf.map_or(folder.clone(), |file| folder.join(file)))
    }

    /// An error with one line and its exit code.
    fn refusal(&self, id: Id<'_>, error: &ApiError) -> anyhow::Error {
        let code = match error {
            ApiError::IoError(_) | ApiError::LockAcquisition(_) => exit::IO,
            _ if is_refused(error) => exit::NO_INPUT,
            _ => exit::UNAVAILABLE,
        };
        let mut reason = self.reason(id, error);
        if status(error).is_none() && code == exit::UNAVAILABLE {
            let cache = self.cache.path().display();
            reason.push_str(&format!(
                "; without a network, give the folder of a copy (--model ./FOLDER), or put a copy of \
                 another machine's cache at {cache} and set HF_HUB_OFFLINE=1"
            ));
        }
        exit::failure(code, reason)
    }

    /// The reason in one line.
    fn reason(&self, id: Id<'_>, error: &ApiError) -> String {
        let (name, revision, endpoint) = (id.name, id.revision, &self.endpoint);
        match status(error) {
            Some(404) => {
                format!("{name}: no such folder, and {endpoint} has no revision {revision} of it")
            }
            Some(status @ (401 | 403)) => format!(
                "{name}: no such folder, and {endpoint} does not show it (status {status}): it \
                 does not exist, or needs an HF_TOKEN with access"
            ),
            Some(status) => format!("{name}: {endpoint} answered with status {status}"),
            None => {
                let error = error.to_string().replace('\n', " ");
                format!("{name}: no such folder, and not downloaded from {endpoint}: {error}")
            }
        }
    }
}

/// The HTTP status of the Hub's answer, if there was one.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        ApiError::TooManyRetries(last) => status(last),
        _ => None,
    }
}

/// Whether the Hub's status means that this user cannot see such a model.
fn is_refused(error: &ApiError) -> bool {
    matches!(status(error), Some(401 | 403 | 404))
}

fn repository(id: Id<'_>) -> Repo {
    let (name, revision) = (id.name.to_owned(), id.revision.to_owned());
    Repo::with_revision(name, RepoType::Model, revision)
}

/// The shards that the index in `folder` names. None if it is faulty: loading says why.
fn shards_of(folder: &Path) -> Vec<String> {
    let mut shards = Files::folder(folder).shards().unwrap_or_default();
    shards.retain(|name| is_word(name));
    shards
}

#[cfg(test)]
mod tests;
