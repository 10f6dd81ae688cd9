//! The limit of open files and how many connections it allows; the room on a disk.

use std::path::Path;

/// Files beside the connections: standard streams, the event loop, weights that load, the key file, a
/// collector of spans, and connections that are reserved for probes.
const OTHER_FILES: u64 = 64;

/// Bytes that this user can write to the file system of `path`, or of the nearest folder above it that
/// exists. `None` if the system does not report them.
#[cfg(unix)]
pub fn free_bytes(path: &Path) -> Option<u64> {
    let folder = path.ancestors().find(|folder| folder.exists())?;
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Not asked on other systems.
#[cfg(not(unix))]
pub fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

/// Raises the limit of open files as far as it may, and lowers `wanted` connections to what it allows.
pub fn connections(wanted: usize) -> usize {
    let allowed = allowed(raised_limit(), wanted);
    if allowed < wanted {
        tracing::warn!(
            wanted,
            allowed,
            "server.max_connections is lowered to fit the limit of open files"
        );
    }
    allowed
}

/// The limit of open files, raised as far as it may.
#[cfg(unix)]
fn raised_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// Windows limits sockets by memory only.
#[cfg(not(unix))]
fn raised_limit() -> Option<u64> {
    None
}

/// At most `wanted` connections under a limit of open files; no limit allows any number.
fn allowed(limit: Option<u64>, wanted: usize) -> usize {
    let Some(limit) = limit else {
        return wanted;
    };
    let connections = limit.saturating_sub(OTHER_FILES).max(limit / 2).max(1);
    usize::try_from(connections).map_or(wanted, |most| most.min(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_exceed_the_limit_of_open_files() {
        assert_eq!(allowed(None, 4096), 4096);
        assert_eq!(allowed(Some(1 << 20), 4096), 4096);
        assert_eq!(allowed(Some(1024), 4096), 960);
        assert_eq!(allowed(Some(256), 4096), 192);
        assert_eq!(allowed(Some(100), 4096), 50);
        assert_eq!(allowed(Some(0), 4096), 1);
        assert_eq!(allowed(Some(256), 7), 7);
    }
}
