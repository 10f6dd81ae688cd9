//! The Hub's cache, in the layout of the Python package `huggingface_hub`: contents in `blobs` by their
//! names, links to them in `snapshots` by commit, commits in `refs` by branch. Nothing enters it before
//! its size and digest are checked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::http::{Client, Fault, Meta, hex, is_digest};

/// Number of times that a transfer is resumed which brought nothing.
const MAX_RESUMES: u32 = 3;
/// The extension of a file whose download is not complete.
pub(super) const PART: &str = "incomplete";
/// Pause between two looks at a lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The folder of one repository.
pub(super) struct Store<'a> {
    cache: &'a Path,
    folder: String,
    /// Time between two lines about the lock of another process.
    pub notice: Duration,
    /// Writes such a line.
    pub say: &'a dyn Fn(&str),
}

/// A file of the Hub.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub client: &'a Client,
    /// Its path at the Hub.
    pub path: &'a str,
    pub commit: &'a str,
    /// Its name, perhaps in a folder.
    pub name: &'a str,
}

impl<'a> Store<'a> {
    /// The store of the model `name`, which is `organisation/model`.
    pub fn new(cache: &'a Path, name: &str, say: &'a dyn Fn(&str)) -> Self {
        Self {
            cache,
            folder: format!("models--{}", name.replace('/', "--")),
            notice: Duration::from_secs(10),
            say,
        }
    }

    /// Its files.
    pub fn root(&self) -> PathBuf {
        self.cache.join(&self.folder)
    }

    /// Its locks.
    pub fn locks(&self) -> PathBuf {
        self.cache.join(".locks").join(&self.folder)
    }

    /// Checks that no other process downloads a file of it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if one does.
    pub fn claim(&self) -> io::Result<()> {
        let locks = fs::read_dir(self.locks()).into_iter().flatten().flatten();
        for lock in locks {
            let file = OpenOptions::new().append(true).open(lock.path())?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                let message = "another process downloads it: wait for it, or end it";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
        }
        Ok(())
    }

    /// The folder of a commit.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root().join("snapshots").join(commit)
    }

    /// Bytes of the files whose download is not complete.
    pub fn part_bytes(&self) -> u64 {
        let blobs = fs::read_dir(self.root().join("blobs")).into_iter().flatten().flatten();
        let parts = blobs.filter(|blob| blob.path().extension().is_some_and(|end| end == PART));
        parts.filter_map(|part| Some(part.metadata().ok()?.len())).sum()
    }

    /// The commit of a branch, if it is known.
    pub fn commit_of(&self, revision: &str) -> Option<String> {
        let commit = fs::read_to_string(self.root().join("refs").join(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_digest(commit))
    }

    /// Keeps the commit of a branch. One that is known is not written again: the disk may be read-only.
    pub fn put_commit(&self, revision: &str, commit: &str) -> io::Result<()> {
        if revision == commit || self.commit_of(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.root().join("refs").join(revision);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, commit)
    }

    /// Puts a file into its snapshot, from the cache or from the Hub. `progress` gets the bytes that
    /// are present and the size of the file.
    ///
    /// # Errors
    /// Every [`Fault`]. A file that is broken twice is [`Fault::Refused`], and nothing of it is kept.
    pub fn fetch(&self, source: Source<'_>, progress: &dyn Fn(u64, u64)) -> Result<(), Fault> {
        let (meta, begin, bytes) = source.open(0)?;
        let blobs = self.root().join("blobs");
        fs::create_dir_all(&blobs)?;
        let blob = blobs.join(&meta.etag);
        let _lock = self.lock(&meta.etag, source.name)?;
        let mut opened = Some((begin, bytes));
        if !is_file_of(&blob, meta.size) {
            let part = blobs.join(format!("{}.{PART}", meta.etag));
            if meta.etag.len() != 64 {
                // Nothing tells whether a part without a digest is one of this file.
                remove(&part)?;
            }
            let mut broken = transfer(source, &meta, &part, opened.take(), progress)?;
            if broken.is_some() {
                let anew = None::<(u64, io::Empty)>;
                broken = transfer(source, &meta, &part, anew, progress)?;
            }
            if let Some(reason) = broken {
                return Err(Fault::Refused(format!("{}: {reason}", source.name)));
            }
            fs::rename(&part, &blob)?;
        }
        let link = self.snapshot(source.commit).join(source.name);
        // A file may lie in a folder of the model's.
        let up = "../".repeat(2 + source.name.matches('/').count());
        let relative = format!("{up}blobs/{}", meta.etag);
        // Another process may read the link that it made.
        if fs::read_link(&link).is_ok_and(|found| found == Path::new(&relative)) {
            return Ok(());
        }
        link.parent().map_or(Ok(()), fs::create_dir_all)?;
        remove(&link)?;
        link_to(&blob, &relative, &link)?;
        Ok(())
    }

    /// The lock of a content, which other processes hold while they download it. Waits for them.
    fn lock(&self, etag: &str, name: &str) -> Result<File, Fault> {
        let folder = self.locks();
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{etag}.lock"));
        let options = OpenOptions::new().create(true).append(true).clone();
        let file = options.open(&path)?;
        let mut told = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) => {}
            }
            if told.elapsed() >= self.notice {
                let path = path.display();
                let line = format!("waiting for another process that downloads {name}: {path}");
                (self.say)(&line);
                told = Instant::now();
            }
            std::thread::sleep(LOCK_POLL_INTERVAL.min(self.notice));
        }
    }
}

impl Source<'_> {
    fn open(&self, start: u64) -> Result<(Meta, u64, impl Read + use<>), Fault> {
        self.client.file(self.path, self.commit, start)
    }
}

/// Completes the file `part`, which has the first bytes of a content or none. Why it is broken, if it
/// is; it is removed then. `opened` is an answer of the Hub that begins at the first byte.
fn transfer<R: Read>(
    source: Source<'_>,
    meta: &Meta,
    part: &Path,
    opened: Option<(u64, R)>,
    progress: &dyn Fn(u64, u64),
) -> Result<Option<String>, Fault> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(part)?;
    let held = file.metadata()?.len();
    if held > meta.size {
        file.set_len(0)?;
    }
    let mut opened = opened.filter(|_| file.metadata().is_ok_and(|file| file.len() == 0));
    let (mut resumes, mut most) = (0, 0);
    loop {
        let position = file.seek(SeekFrom::End(0))?;
        if position >= meta.size {
            break;
        }
        if position > most {
            (resumes, most) = (0, position);
        }
        let copied = match opened.take() {
            Some((_, bytes)) => copy(bytes, &mut file, meta.size, progress),
            None => match source.open(position) {
                Ok((other, ..)) if other != *meta => {
                    remove(part)?;
                    return Ok(Some("it changed during the download".to_owned()));
                }
                Ok((_, begin, bytes)) => {
                    file.set_len(begin)?;
                    file.seek(SeekFrom::End(0))?;
                    copy(bytes, &mut file, meta.size, progress)
                }
                Err(fault) => Err(fault),
            },
        };
        match copied {
            Ok(()) => break,
            Err(Fault::Network(_)) if resumes < MAX_RESUMES => {
                if file.metadata()?.len() <= most {
                    source.client.pause(resumes);
                }
                resumes += 1;
            }
            Err(fault) => return Err(fault),
        }
    }
    file.sync_all()?;
    let problem = problem(&mut file, meta)?;
    if problem.is_some() {
        drop(file);
        remove(part)?;
    }
    Ok(problem)
}

/// Appends `bytes` to `file` to its end, or until it has one byte more than `size`.
fn copy(
    bytes: impl Read,
    file: &mut File,
    size: u64,
    progress: &dyn Fn(u64, u64),
) -> Result<(), Fault> {
    let mut position = file.stream_position()?;
    let mut bytes = bytes.take((size - position).saturating_add(1));
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = match bytes.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::Network(error.to_string())),
        };
        file.write_all(&buffer[..read])?;
        position += u64::try_from(read).unwrap_or_default();
        progress(position, size);
    }
}

/// The reason why a file is not the content that `meta` names.
fn problem(file: &mut File, meta: &Meta) -> io::Result<Option<String>> {
    let size = file.metadata()?.len();
    if size != meta.size {
        let most = if size > meta.size { " or more" } else { "" };
        return Ok(Some(format!("expected {} bytes, found {size}{most}", meta.size)));
    }
    if meta.etag.len() != 64 {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(0))?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => digest.update(&buffer[..read]),
        }
    }
    let found = hex(&digest.finalize());
    Ok((found != meta.etag).then(|| format!("expected SHA-256 {}, found {found}", meta.etag)))
}

/// True if `path` is a file of `size` bytes.
fn is_file_of(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == size)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A link at `link` to `blob`, which is `relative` from the link's folder; where the system has no such
/// links, another name of the same file.
#[cfg(unix)]
fn link_to(_blob: &Path, relative: &str, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(relative, link)
}

#[cfg(not(unix))]
fn link_to(blob: &Path, _relative: &str, link: &Path) -> io::Result<()> {
    fs::hard_link(blob, link).or_else(|_| fs::copy(blob, link).map(drop))
}
