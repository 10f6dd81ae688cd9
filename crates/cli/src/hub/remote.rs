//! A revision of a model at the Hub.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use anyhow::Result;
use model::Files;
use serde::Deserialize;

use super::http::{Client, Fault, is_digest};
use super::id::{Id, alone, is_word};
use super::store::{Source, Store};
use super::{CONFIG, Hub, INDEX, Missing, WEIGHTS};
use crate::progress;

/// A revision at the Hub, and the folder of its files.
pub(super) struct Remote<'a> {
    pub hub: &'a Hub,
    pub client: Client,
    pub store: Store<'a>,
    pub id: Id<'a>,
    pub listed: FileList,
    pub folder: PathBuf,
}

impl Remote<'_> {
    /// The names of its files.
    pub fn files(&self) -> Vec<&str> {
        self.listed.siblings.iter().map(|file| &*file.rfilename).collect()
    }

    /// The bytes of a file, if the Hub lists them.
    fn size(&self, name: &str) -> Option<u64> {
        self.listed.siblings.iter().find(|file| file.rfilename == name)?.size
    }

    /// True if the folder has the whole file.
    fn has(&self, name: &str) -> bool {
        let found = std::fs::metadata(self.folder.join(name)).ok().filter(Metadata::is_file);
        found.is_some_and(|found| self.size(name).is_none_or(|size| size == found.len()))
    }

    /// Downloads a file that is not here.
    pub fn get(&self, name: &str) -> Result<()> {
        if self.has(name) {
            return Ok(());
        }
        let commit = self.listed.sha.as_str();
        let path = &format!("/{}/resolve/{commit}/{name}", self.id.name);
        let source = Source { client: &self.client, path, commit, name };
        let bar = progress::download(name);
        let fetched = self.store.fetch(source, &|received, size| bar.show(received, size));
        fetched.map_err(|fault| self.hub.refusal(self.id, &fault))
    }

    /// The files of weights in safetensors, after the index is downloaded.
    pub fn weights(&self) -> Result<Vec<String>> {
        self.get(CONFIG)?;
        let files = self.files();
        if files.contains(&WEIGHTS) {
            return Ok(vec![WEIGHTS.to_owned()]);
        }
        if let Some(only) = alone(&files).filter(|_| !files.contains(&INDEX)) {
            return Ok(vec![only.to_owned()]);
        }
        self.get(INDEX)?;
        Ok(shards_of(&self.folder))
    }

    /// The files of `weights` that are not here.
    pub fn missing(&self, weights: &[String], is_gguf: bool) -> Option<Missing> {
        let missing: Vec<&String> = weights.iter().filter(|name| !self.has(name)).collect();
        let sizes = missing.iter().map(|name| self.size(name));
        let listed = sizes.sum::<Option<u64>>();
        let is_whole = missing.len() == weights.len();
        let indexed = || Files::folder(&self.folder).indexed_bytes().filter(|_| is_whole);
        let bytes = listed.or_else(indexed);
        (!missing.is_empty()).then_some(Missing { bytes, is_gguf })
    }
}

/// The files of a revision, as the Hub lists them.
#[derive(Debug, Deserialize)]
pub(super) struct FileList {
    /// The revision's commit.
    pub sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
    /// In bytes.
    size: Option<u64>,
}

pub(super) fn list(client: &Client, id: Id<'_>) -> Result<FileList, Fault> {
    let revision = id.revision.replace('/', "%2F");
    let text = client.list(&format!("/api/models/{}/revision/{revision}?blobs=true", id.name))?;
    let listed: FileList = serde_json::from_str(&text)
        .map_err(|error| Fault::Refused(format!("the list of files: {error}")))?;
    if is_digest(&listed.sha) {
        return Ok(listed);
    }
    let found: String = listed.sha.chars().take(200).collect();
    Err(Fault::Refused(format!("sha: expected 40 or 64 hexadecimal digits, found {found:?}")))
}

/// The shards that the index in `folder` names. None if it is faulty: loading says why.
pub(super) fn shards_of(folder: &Path) -> Vec<String> {
    let mut shards = Files::folder(folder).shards().unwrap_or_default();
    shards.retain(|name| is_word(name));
    shards
}
