//! The files of a checkpoint: memory-mapped from a folder, or bytes in memory.

use crate::LoadError;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

/// The first words of the file that stands in place of one that Git LFS has not downloaded.
const POINTER: &[u8] = b"version https://git-lfs";

const SAFETENSORS: &str = ".safetensors";
const GGUF: &str = ".gguf";

/// The files of one checkpoint, by name.
#[derive(Clone, Debug)]
pub struct Files(Source);

#[derive(Clone, Debug)]
enum Source {
    Folder(PathBuf),
    /// A folder and the name of the GGUF file in it that contains the weights.
    Gguf(PathBuf, String),
    Memory(BTreeMap<String, Cow<'static, [u8]>>),
}

/// The content of a file. The file must not change while this exists.
pub(crate) enum Bytes {
    Mapped(memmap2::Mmap, std::fs::File),
    Memory(Cow<'static, [u8]>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map, _) => map,
            Self::Memory(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// A range of the content. Dropping it releases the mapped memory pages.
    pub(crate) fn slice(&self, range: Range<usize>) -> std::io::Result<FileSlice<'_>> {
        match self {
            Self::Mapped(..) if range.is_empty() => Ok(FileSlice::Memory(&[])),
            Self::Mapped(_, file) => {
                let mut options = memmap2::MmapOptions::new();
                options.offset(range.start as u64).len(range.len());
                map(&options, file).map(FileSlice::Mapped)
            }
            Self::Memory(bytes) => Ok(FileSlice::Memory(&bytes[range])),
        }
    }
}

/// A range of a file's content.
pub(crate) enum FileSlice<'a> {
    Mapped(memmap2::Mmap),
    Memory(&'a [u8]),
}

impl Deref for FileSlice<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Memory(bytes) => bytes,
        }
    }
}

impl Files {
    /// The files of a folder; weights are memory-mapped.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self(Source::Folder(path.into()))
    }

    /// A GGUF file and the other files of its folder.
    pub fn gguf_file(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self(Source::Gguf(folder, name.into_owned()))
    }

    /// Files in memory by name, for example from `include_bytes!`.
    pub fn memory<N: Into<String>, B: Into<Cow<'static, [u8]>>>(
        files: impl IntoIterator<Item = (N, B)>,
    ) -> Self {
        let files = files.into_iter().map(|(name, bytes)| (name.into(), bytes.into()));
        Self(Source::Memory(files.collect()))
    }

    /// The folder's path, or a description of the files in memory; for error messages.
    pub(crate) fn place(&self) -> String {
        match &self.0 {
            Source::Folder(path) | Source::Gguf(path, _) => path.display().to_string(),
            Source::Memory(_) => "the embedded files".to_owned(),
        }
    }

    /// True if something with this name exists; opening it refuses what is no regular file.
    pub fn contains(&self, name: &str) -> bool {
        match &self.0 {
            Source::Folder(path) | Source::Gguf(path, _) => path.join(name).exists(),
            Source::Memory(files) => files.contains_key(name),
        }
    }

    /// The GGUF file that contains the weights; `None` if a safetensors file exists.
    pub(crate) fn gguf(&self) -> Result<Option<String>, LoadError> {
        let folder = match &self.0 {
            Source::Gguf(_, name) => return Ok(Some(name.clone())),
            Source::Folder(folder) => folder,
            Source::Memory(_) => return Ok(None),
        };
        let Ok(entries) = std::fs::read_dir(folder) else {
            return Ok(None);
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let (mut found, mut safe) = (Vec::new(), false);
        for name in names {
            safe |= name.ends_with(SAFETENSORS) || name.ends_with(".safetensors.index.json");
            if name.ends_with(GGUF) {
                found.push(name);
            }
        }
        found.sort();
        match (safe, found.len()) {
            (true, _) | (_, 0) => Ok(None),
            (_, 1) => Ok(found.pop()),
            _ if are_shards(&found) => Ok(Some(found.swap_remove(0))),
            _ => Err(LoadError::ManyFiles { place: self.place(), found: found.join(", ") }),
        }
    }

    /// The names of the safetensors files, sorted.
    pub(crate) fn safetensors(&self) -> Vec<String> {
        let mut names: Vec<String> = match &self.0 {
            Source::Memory(files) => files.keys().cloned().collect(),
            Source::Folder(folder) | Source::Gguf(folder, _) => {
                let entries = std::fs::read_dir(folder).into_iter().flatten();
                entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
            }
        };
        names.retain(|name| name.ends_with(SAFETENSORS));
        names.sort();
        names
    }

    /// The content of a file.
    pub(crate) fn open(&self, name: &str) -> Result<Bytes, LoadError> {
        let content = self.content(name)?;
        match content.starts_with(POINTER) {
            true => Err(LoadError::Pointer { file: name.to_owned() }),
            false => Ok(content),
        }
    }

    fn content(&self, name: &str) -> Result<Bytes, LoadError> {
        let missing = || LoadError::MissingFile { file: name.to_owned(), place: self.place() };
        match &self.0 {
            Source::Memory(files) => {
                files.get(name).cloned().map(Bytes::Memory).ok_or_else(missing)
            }
            Source::Folder(folder) | Source::Gguf(folder, _) => {
                let path = folder.join(name);
                let unreadable = |error: std::io::Error| match error.kind() {
                    std::io::ErrorKind::NotFound => missing(),
                    _ => LoadError::Unreadable {
                        file: path.display().to_string(),
                        reason: error.to_string(),
                    },
                };
                // Opening a pipe waits for a writer, and a device may have no end.
                let kind = std::fs::metadata(&path).map_err(unreadable)?;
                if !kind.is_file() {
                    return Err(LoadError::Unreadable {
                        file: path.display().to_string(),
                        reason: "expected a regular file, found another kind".to_owned(),
                    });
                }
                let file = std::fs::File::open(&path).map_err(unreadable)?;
                // An empty file cannot be mapped.
                if file.metadata().map_err(unreadable)?.len() == 0 {
                    return Ok(Bytes::Memory(Cow::Borrowed(&[])));
                }
                let whole = map(&memmap2::MmapOptions::new(), &file).map_err(unreadable)?;
                Ok(Bytes::Mapped(whole, file))
            }
        }
    }
}

/// The name of a shard of a model (`NAME-00001-of-00003.gguf`, or `.safetensors`) without its number, and the
/// number of shards; `None` for another name.
pub(crate) fn shard_stem(file: &str) -> Option<(&str, u64)> {
    let file = file.strip_suffix(GGUF).or_else(|| file.strip_suffix(SAFETENSORS))?;
    let (rest, count) = file.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(number) && is_number(count)).then_some((stem, count.parse().ok()?))
}

/// True if all files are shards of one model.
fn are_shards(files: &[String]) -> bool {
    let stems: Option<Vec<_>> = files.iter().map(|file| shard_stem(file)).collect();
    stems.is_some_and(|stems| stems.iter().all(|stem| *stem == stems[0]))
}

/// Maps a file or a range of it for reading.
#[expect(unsafe_code, reason = "the only memory map: weights are read without copying the file")]
fn map(options: &memmap2::MmapOptions, file: &std::fs::File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: the map is only read, as bytes. If another process truncates the file while it is
    // mapped, the system ends this process, as in every program that maps weights.
    unsafe { options.map(file) }
}
