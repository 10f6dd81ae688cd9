//! A progress bar while weights load.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::Checkpoint;

/// Checkpoints below this many bytes load too fast for a bar.
const MIN_BAR_BYTES: u64 = 64 << 20;

/// Attaches a bar on standard error to the loading of `checkpoint`. The bar clears itself when
/// dropped, and draws nothing if standard error is not a terminal.
pub fn shown(checkpoint: Checkpoint) -> (Checkpoint, ProgressGuard) {
    let total = checkpoint.stored_bytes();
    let shown = std::io::stderr().is_terminal() && total >= MIN_BAR_BYTES;
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = "  loading    {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
    let drawn = bar.clone();
    let watched = checkpoint.with_watch(move |bytes| drawn.inc(bytes));
    (watched, ProgressGuard(bar))
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
}
