//! Metrics of the process, under the names that Prometheus clients share.

use std::fs::{read_dir, read_to_string};
use std::sync::{Mutex, PoisonError};

use prometheus::{Counter, Gauge};

use super::register::Register;

/// Linux tells processor time in hundredths of a second, whatever clock the kernel has.
const TICKS_PER_SECOND: f64 = 100.0;
/// The shell's word for no limit; the names' other users export this number then.
const UNLIMITED: f64 = u64::MAX as f64;

/// The metrics, read from `/proc` at each scrape.
#[derive(Debug)]
pub struct Process {
    /// Locked while a scrape reads: two must not add the same time.
    cpu: Mutex<Counter>,
    resident: Gauge,
    virtual_memory: Gauge,
    threads: Gauge,
    open_files: Gauge,
}

impl Process {
    /// Registers them; nothing where the system has no `/proc`.
    pub fn new(register: &Register<'_>) -> Option<Self> {
        let started = Times::parse(&read_to_string("/proc/self/stat").ok()?)?.started;
        let booted = number_after(&read_to_string("/proc/stat").ok()?, "btime")?;
        let limits = read_to_string("/proc/self/limits").ok()?;
        let gauge = |name, help| register.shared_gauge(name, help);
        gauge("process_start_time_seconds", "Start of the process, in seconds since 1970")
            .set(booted + started);
        gauge("process_max_fds", "Maximum number of open files").set(most_files(&limits)?);
        let cpu = register
            .shared_counter("process_cpu_seconds_total", "Processor time of user and system");
        Some(Self {
            cpu: Mutex::new(cpu),
            resident: gauge("process_resident_memory_bytes", "Memory in RAM"),
            virtual_memory: gauge("process_virtual_memory_bytes", "Address space in use"),
            threads: gauge("process_threads", "Threads"),
            open_files: gauge("process_open_fds", "Open files"),
        })
    }

    /// Reads the present values. A value that cannot be read stays as it was.
    pub fn refresh(&self) {
        let cpu = self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        let stat = read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some(times) = Times::parse(&stat) {
            cpu.inc_by((times.used - cpu.get()).max(0.0));
        }
        drop(cpu);
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        let values = [
            (&self.resident, "VmRSS:", 1024.0),
            (&self.virtual_memory, "VmSize:", 1024.0),
            (&self.threads, "Threads:", 1.0),
        ];
        for (gauge, key, unit) in values {
            if let Some(value) = number_after(&status, key) {
                gauge.set(value * unit);
            }
        }
        if let Ok(files) = read_dir("/proc/self/fd") {
            // The folder itself is open while it is read.
            self.open_files.set(files.count().saturating_sub(1) as f64);
        }
    }
}

/// Times of `/proc/self/stat`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    /// Processor time of user and system.
    used: f64,
    /// Start, since the machine booted.
    started: f64,
}

impl Times {
    /// Reads the line. The second field is the program's name in parentheses and may contain any.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The third field of the line is the first one here.
        let seconds = |field: usize| {
            let ticks: f64 = fields.get(field - 3)?.parse().ok()?;
            Some(ticks / TICKS_PER_SECOND)
        };
        Some(Self { used: seconds(14)? + seconds(15)?, started: seconds(22)? })
    }
}

/// The number after `key` at the start of a line.
fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The soft limit of open files in `/proc/self/limits`.
fn most_files(limits: &str) -> Option<f64> {
    let mut lines = limits.lines();
    let rest = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(UNLIMITED),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_hides_no_field() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4 9 0 0 0 250 50 0 0 20 0 3 0 4200 1 2 3\n";
        let expected = Times { used: 3.0, started: 42.0 };
        assert_eq!(Times::parse(stat), Some(expected));
        assert_eq!(Times::parse("7 (a) S 1"), None);
        assert_eq!(Times::parse(""), None);
    }

    #[test]
    fn numbers_are_found_by_their_keys() {
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t5\n";
        assert_eq!(number_after(status, "VmRSS:"), Some(1024.0));
        assert_eq!(number_after(status, "Threads:"), Some(5.0));
        assert_eq!(number_after(status, "VmSwap:"), None);
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(most_files(limits), Some(1024.0));
        let none = "Max open files            unlimited            unlimited            files\n";
        assert_eq!(most_files(none), Some(UNLIMITED));
    }
}
