//! The memory that Linux reports as free, within control groups.

use std::path::Path;

/// Available bytes: the system's, limited by the control groups of this process. `None` if the system
/// does not report them.
pub(super) fn available(root: &Path) -> Option<u64> {
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let left = groups.lines().filter_map(|line| group(root, line)).min();
    Some((kib << 10).min(left.unwrap_or(u64::MAX)))
}

/// Bytes left in the group of a line of `/proc/self/cgroup` and in the groups around it.
fn group(root: &Path, line: &str) -> Option<u64> {
    let (_, line) = line.split_once(':')?;
    let (controllers, path) = line.split_once(':')?;
    let mounted = root.join("sys/fs/cgroup");
    // In a container the path may be the host's; then the group's files are at the mount point.
    let (mounted, names) = match controllers {
        "" => (mounted, ["memory.max", "memory.current", "inactive_file "]),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];
            (mounted.join("memory"), names)
        }
        _ => return None,
    };
    let inner = mounted.join(path.trim_start_matches('/'));
    let around = inner.ancestors().take_while(|folder| folder.starts_with(&mounted));
    around.filter_map(|folder| left_of(folder, names)).min()
}

/// Bytes left in one control group; inactive file pages count as free.
fn left_of(folder: &Path, [limit, used, idle]: [&str; 3]) -> Option<u64> {
    let number = |name| -> Option<u64> {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let limit = number(limit)?;
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let idle = stat.lines().find_map(|line| line.strip_prefix(idle)?.parse().ok());
    let used = number(used)?.saturating_sub(idle.unwrap_or(0));
    Some(limit.saturating_sub(used))
}
