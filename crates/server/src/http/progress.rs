//! The progress of a connection: its stage says for whom it waits, for the peer or for this server.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::Version;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

/// The stage of a connection's present request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The peer owes a request.
    Idle,
    /// The peer owes the rest of a body.
    Receiving,
    /// The request is complete, the answer has not begun.
    Waiting,
    /// The answer is being sent.
    Answering,
}

/// The progress of one connection, shared by its socket, its requests and the accept loop.
#[derive(Debug)]
pub struct Progress {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    stage: Stage,
    since: Instant,
    /// True if the peer speaks HTTP/1.1 and so understands interim answers.
    interim: bool,
}

impl Progress {
    /// A connection that has sent nothing yet.
    pub fn new() -> Arc<Self> {
        let state = State { stage: Stage::Idle, since: Instant::now(), interim: false };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// The stage, and how long it has lasted.
    pub fn stage(&self) -> (Stage, Duration) {
        let state = self.state();
        (state.stage, state.since.elapsed())
    }

    /// True if an interim answer (1xx) may be sent now.
    pub fn takes_interim(&self) -> bool {
        let state = self.state();
        state.stage == Stage::Waiting && state.interim
    }

    /// A request whose head is complete; its body reports when it is.
    pub fn receive(self: &Arc<Self>, version: Version, body: Incoming) -> Body {
        let complete = body.is_end_stream();
        self.enter(Stage::Receiving);
        self.state().interim = version >= Version::HTTP_11;
        if complete {
            self.enter(Stage::Waiting);
        }
        Body::new(BodyEnd { body, progress: Arc::clone(self) })
    }

    /// An answer, after which the connection is idle.
    pub fn answer(self: &Arc<Self>, body: Body) -> Body {
        self.enter(Stage::Answering);
        Body::new(Answer { body, progress: Arc::clone(self) })
    }

    fn complete(&self) {
        let receiving = self.state().stage == Stage::Receiving;
        if receiving {
            self.enter(Stage::Waiting);
        }
    }

    fn enter(&self, stage: Stage) {
        let mut state = self.state();
        (state.stage, state.since) = (stage, Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's body, complete once it has been read to its end or nobody wants the rest.
struct BodyEnd {
    body: Incoming,
    progress: Arc<Progress>,
}

impl HttpBody for BodyEnd {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.progress.complete();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for BodyEnd {
    fn drop(&mut self) {
        self.progress.complete();
    }
}

/// An answer's body; the connection is idle when it is dropped.
struct Answer {
    body: Body,
    progress: Arc<Progress>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.progress.enter(Stage::Idle);
    }
}
