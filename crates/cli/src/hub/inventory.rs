//! The models in the Hub's cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::id::Id;
use super::store::{PART, Store};
use crate::exit;

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CachedModel {
    /// `org/name`, or a name alone for the oldest models of the Hub.
    pub id: String,
    /// Branches and tags with the commits that they name, and commits that were asked for by themselves.
    pub revisions: Vec<Revision>,
    /// Bytes of its files, parts of downloads included.
    pub bytes: u64,
    /// True if a download is not complete.
    pub is_partial: bool,
}

/// A revision of a model in the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Revision {
    /// A branch or tag, or the commit itself.
    pub name: String,
    /// Hexadecimal digits.
    pub commit: String,
}

/// The Hub's cache.
#[derive(Debug, Serialize)]
pub struct Cache {
    /// Its folder.
    pub folder: PathBuf,
    /// The models in it, by id.
    pub models: Vec<CachedModel>,
}

impl Cache {
    /// The cache in `folder`. One that cannot be read is empty.
    pub(super) fn read(folder: PathBuf) -> Self {
        let models = entries(&folder).filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_prefix("models--")?;
            let id = name.replacen("--", "/", 1);
            path.is_dir().then(|| model(&path, id))
        });
        let mut models: Vec<CachedModel> = models.collect();
        models.sort_by(|one, other| one.id.cmp(&other.id));
        Self { models, folder }
    }

    /// The model of an id, which may name a revision and a file.
    pub fn find(&self, id: &str) -> Option<&CachedModel> {
        let name = Id::parse(id).map_or(id, |id| id.name);
        self.models.iter().find(|model| model.id == name)
    }

    /// Removes a model with all its revisions.
    ///
    /// # Errors
    /// Another process downloads it; a folder that cannot be removed.
    pub fn remove(&self, model: &CachedModel) -> Result<()> {
        removed(&self.folder, &model.id).map_err(|error| {
            let message = format!("{}: {}: {error}", model.id, self.folder.display());
            exit::failure(exit::IO, message)
        })
    }
}

fn model(folder: &Path, id: String) -> CachedModel {
    let refs = folder.join("refs");
    let mut revisions: Vec<Revision> = files(&refs)
        .filter_map(|path| {
            let name = path.strip_prefix(&refs).ok()?.to_str()?.to_owned();
            let commit = fs::read_to_string(&path).ok()?.trim().to_owned();
            Some(Revision { name, commit })
        })
        .collect();
    for path in entries(&folder.join("snapshots")) {
        let Some(commit) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if revisions.iter().all(|revision| revision.commit != commit) {
            revisions.push(Revision { name: commit.to_owned(), commit: commit.to_owned() });
        }
    }
    revisions.sort();
    let blobs = || entries(&folder.join("blobs"));
    let is_part = |path: &PathBuf| path.extension().is_some_and(|end| end == PART);
    // Where the system has no links, snapshots hold the contents.
    let contents = blobs().chain(files(&folder.join("snapshots")));
    let bytes = contents.filter_map(|path| fs::symlink_metadata(path).ok());
    let bytes = bytes.filter(fs::Metadata::is_file).map(|file| file.len()).sum();
    CachedModel { id, revisions, bytes, is_partial: blobs().any(|path| is_part(&path)) }
}

fn removed(cache: &Path, id: &str) -> io::Result<()> {
    let store = Store::new(cache, id, &|_| {});
    store.claim()?;
    fs::remove_dir_all(store.root())?;
    match fs::remove_dir_all(store.locks()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The paths directly in a folder.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// The files and links below a folder, whose depth is that of a branch's name.
fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            match fs::symlink_metadata(&path).is_ok_and(|entry| entry.is_dir()) {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.into_iter()
}
