//! The progress of loading weights: a bar on a terminal, else lines of the log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::Checkpoint;

/// Checkpoints below this many bytes load too fast for a bar.
const MIN_BAR_BYTES: u64 = 64 << 20;

/// Time between two lines of the log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the loading of `checkpoint`: by a bar if standard error is a terminal, which clears itself when dropped,
/// else by lines of the log, so that a starting server is not silent for minutes.
pub fn shown(checkpoint: Checkpoint) -> (Checkpoint, ProgressGuard) {
    let total = checkpoint.stored_bytes();
    let is_terminal = std::io::stderr().is_terminal();
    let target = match is_terminal && total >= MIN_BAR_BYTES {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = "  loading    {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
    let drawn = bar.clone();
    let is_logged = !is_terminal && total >= MIN_BAR_BYTES;
    let mut lines = is_logged.then(|| Lines::begin(total));
    let watched = checkpoint.with_watch(move |bytes| {
        drawn.inc(bytes);
        if let Some(lines) = &mut lines {
            lines.read(drawn.position(), Instant::now());
        }
    });
    (watched, ProgressGuard(bar))
}

/// Lines of the log about the bytes that were read.
struct Lines {
    total: u64,
    next: Instant,
}

impl Lines {
    fn begin(total: u64) -> Self {
        tracing::info!(bytes = total, "loading the model");
        Self { total, next: Instant::now() + LINE_INTERVAL }
    }

    /// Says how much is read if the last line is old enough. Returns true if it did.
    fn read(&mut self, position: u64, now: Instant) -> bool {
        let is_due = now >= self.next;
        if is_due {
            tracing::info!(read = position, bytes = self.total, "loading the model");
            self.next = now + LINE_INTERVAL;
        }
        is_due
    }
}

/// A bar that clears itself when dropped.
pub struct ProgressGuard(ProgressBar);

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar on standard error for the download of the file `name`, if that is a terminal.
pub fn download(name: &str) -> Download {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
    let style = "  {msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
    bar.set_message(name.to_owned());
    Download(ProgressGuard(bar))
}

/// The bar of a download, which clears itself when dropped.
pub struct Download(ProgressGuard);

impl Download {
    /// `position` of `size` bytes are present. A short file has no bar.
    pub fn show(&self, position: u64, size: u64) {
        let ProgressGuard(bar) = &self.0;
        if bar.is_hidden() && size >= MIN_BAR_BYTES && std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_length(size);
        bar.set_position(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Files, Model};

    #[test]
    fn a_bar_reaches_its_end() {
        let files = Files::memory(demo::checkpoint::DEMO.files());
        let (checkpoint, bar) = shown(Checkpoint::open(&files).unwrap());
        assert!(bar.0.is_hidden(), "the demo model is loaded at once");
        assert_eq!(bar.0.position(), 0);
        Model::load(checkpoint).unwrap();
        assert_eq!(Some(bar.0.position()), bar.0.length());
    }

    #[test]
    fn a_line_comes_every_ten_seconds() {
        let mut lines = Lines::begin(100);
        let begun = lines.next;
        let after = |seconds| begun + Duration::from_secs(seconds);
        let told = [0, 3, 10, 12, 31].map(|seconds| lines.read(seconds, after(seconds)));
        assert_eq!(told, [true, false, true, false, true]);
        assert!(!lines.read(0, begun - Duration::from_millis(1)));
    }
}
