//! Streamed answers: one driver over what an endpoint writes.

use axum::response::Response;

use crate::error::ApiError;
use crate::http::sse;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::usage::Usage;

/// Writes the events of one answer. Every call appends whole events, or nothing.
pub trait WriteEvents: Send + 'static {
    /// The first events, before the first delta.
    fn open(&mut self, _delivery: &Delivery, _frame: &mut String) {}

    /// The events of `delta`.
    fn delta(&mut self, delta: &Delta, delivery: &Delivery, frame: &mut String);

    /// The last events of a complete answer.
    fn finish(&mut self, usage: Usage, delivery: &Delivery, frame: &mut String);

    /// The last events of an answer that broke off.
    fn fail(&mut self, error: &ApiError, frame: &mut String);
}

/// The answer of `delivery` as `writer` writes it. Dropping the body cancels the sequences that still
/// run.
pub fn respond<W: WriteEvents>(writer: W, delivery: Delivery) -> Response {
    let driver = Driver { writer, delivery, is_open: false };
    let frames = futures_util::stream::unfold(Some(driver), |driver| async {
        let mut driver = driver?;
        let (frame, more) = driver.frame().await;
        Some((frame, more.then_some(driver)))
    });
    sse::response(frames)
}

struct Driver<W> {
    writer: W,
    delivery: Delivery,
    is_open: bool,
}

impl<W: WriteEvents> Driver<W> {
    /// The next events, at least one, and whether more may follow.
    async fn frame(&mut self) -> (String, bool) {
        let mut frame = String::new();
        if !std::mem::replace(&mut self.is_open, true) {
            self.writer.open(&self.delivery, &mut frame);
        }
        while frame.is_empty() {
            match self.delivery.next().await {
                Some(Ok(delta)) => self.writer.delta(&delta, &self.delivery, &mut frame),
                Some(Err(error)) => {
                    self.writer.fail(&error, &mut frame);
                    return (frame, false);
                }
                None => {
                    let usage = self.delivery.finish();
                    self.writer.finish(usage, &self.delivery, &mut frame);
                    return (frame, false);
                }
            }
        }
        (frame, true)
    }
}
