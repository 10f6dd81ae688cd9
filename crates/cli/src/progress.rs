//! A bar on the terminal while weights load.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::Checkpoint;

/// Bytes below which a bar would be gone before it was seen.
const SHORT: u64 = 64 << 20;

/// `checkpoint` with a bar on standard error while it is loaded, and the bar, which clears itself
/// when it is dropped. Nothing is drawn where standard error is no terminal.
pub fn shown(checkpoint: Checkpoint) -> (Checkpoint, Shown) {
    let total = checkpoint.stored_bytes();
    let shown = std::io::stderr().is_terminal() && total >= SHORT;
    let target = if shown {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = "  loading    {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
    let drawn = bar.clone();
    let watched = checkpoint.with_watch(move |bytes| drawn.inc(bytes));
    (watched, Shown(bar))
}

/// A bar that is cleared when it is dropped.
pub struct Shown(ProgressBar);

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.finish_and_clear();
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
