//! The lines of the log on their way to standard error, which a thread of its own writes: a reader that
//! does not read costs lines and nothing else.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use server::SpanCounters;

use crate::console;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written.
const MAX_WAITING_LINES: usize = 4096;
/// Time for the lines that wait at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The lines; cheap to clone.
#[derive(Clone, Debug)]
pub struct Lines {
    sender: SyncSender<Line>,
    lost: Arc<AtomicU64>,
    counters: Arc<OnceLock<SpanCounters>>,
}

#[derive(Debug)]
enum Line {
    Text(Vec<u8>),
    /// Told once everything before it is written.
    Flush(SyncSender<()>),
}

impl Lines {
    /// Lines to `out`; those that are lost count in `counters` once these are set.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub fn new(
        out: impl Write + Send + 'static,
        counters: Arc<OnceLock<SpanCounters>>,
    ) -> io::Result<Self> {
        let (sender, lines) = sync_channel(MAX_WAITING_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let unsaid = Arc::clone(&lost);
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write(&lines, out, &unsaid))?;
        Ok(Self { sender, lost, counters })
    }

    /// Waits a moment until all present lines are written.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.sender.try_send(Line::Flush(done)).is_ok() {
            // A reader that does not read gets nothing more.
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// Never blocks and never fails: a line is taken or lost.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Line::Text(line.to_vec())) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            if let Some(counters) = self.counters.get() {
                counters.lost_line();
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

/// Writes all lines, and how many were lost before one.
fn write(lines: &Receiver<Line>, mut out: impl Write, lost: &AtomicU64) {
    for line in lines {
        match line {
            Line::Text(text) => {
                // Nobody is told of a standard error that is closed.
                let _ = out.write_all(&text);
                let lost = lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let text = format!(
                        "warning: {lost} lines of the log were lost because standard error was not read"
                    );
                    let _ = out.write_all(console::line(&text).as_bytes());
                }
            }
            Line::Flush(done) => {
                let _ = out.flush();
                let _ = done.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Writes once the other end allows it.
    struct GatedWriter(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for GatedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Open once the sender is gone.
            let _ = self.0.recv();
            self.1.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_no_time() {
        let (gate, shut): (Sender<()>, _) = channel();
        let written = Arc::default();
        let out = GatedWriter(shut, Arc::clone(&written));
        let lines = Lines::new(out, Arc::default()).unwrap();
        // One more than the queue and the line that the thread may hold.
        for _ in 0..MAX_WAITING_LINES + 10 {
            (&lines).write_all(b"line\n").unwrap();
        }
        let lost = lines.lost.load(Ordering::Relaxed);
        assert!((9..=10).contains(&lost), "{lost}");
        drop(gate);
        while !String::from_utf8_lossy(&written.lock().unwrap()).contains("were lost") {
            std::thread::yield_now();
        }
        lines.flush();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let kept = u64::try_from(text.matches("line\n").count()).unwrap();
        assert_eq!(kept + lost, u64::try_from(MAX_WAITING_LINES + 10).unwrap());
    }
}
