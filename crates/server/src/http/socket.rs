//! The socket of a connection: a peer that accepts no byte for too long is disconnected, and one
//! that closes its side of the connection still gets its answer.
//!
//! A peer that has only shut down its writing side and one that is gone look the same at first:
//! reading gives the end. To an HTTP/1.1 peer whose answer has not begun, the socket sends the
//! interim answer `100 Continue`, which every client must ignore (RFC 9110, section 15.2.1). A peer
//! that is gone rejects it, and its request ends. In the other cases, a peer that accepts no byte of
//! its answer for [`QUIET_TIMEOUT`] is taken for gone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::progress::{Progress, Stage};

/// Time between two looks at whether a half-closed peer has rejected what was sent, and that the
/// reader of a body has to see its end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A half-closed peer that cannot be asked is gone after this long without a byte sent.
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of answers that the system keeps for a peer; Linux doubles the number for its own data.
const SEND_BUFFER: usize = 128 << 10;
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A socket whose writes fail with `TimedOut` after the limit without progress, and whose end is
/// held back while an answer is owed to a peer that may still read.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    progress: Arc<Progress>,
    limit: Duration,
    /// The time at which the pending write fails; set while a write waits for the peer.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Set once the peer has closed its side.
    half_closed: Option<HalfClosed>,
}

#[derive(Debug)]
struct HalfClosed {
    /// True if the peer was asked whether it is gone.
    asked: bool,
    look: Pin<Box<Sleep>>,
    since: Instant,
    last_byte: Instant,
}

impl HalfClosed {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            asked: false,
            look: Box::pin(sleep_until(now + POLL_INTERVAL)),
            since: now,
            last_byte: now,
        }
    }
}

impl Socket {
    /// Limits writes to `stream`: each must make progress within `limit`, and the system keeps a
    /// bounded number of bytes for a peer that does not read.
    pub fn new(stream: TcpStream, progress: Arc<Progress>, limit: Duration) -> Self {
        // By itself the system's buffer grows to megabytes. The option is not essential.
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        Self { stream, progress, limit, deadline: None, half_closed: None }
    }

    fn guard<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            if let Some(half_closed) = &mut self.half_closed {
                half_closed.last_byte = Instant::now();
            }
            return written;
        }
        let limit = self.limit;
        let deadline =
            self.deadline.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Waits until the answer is complete or the peer is gone; then reading gives the end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Some(half_closed) = &mut self.half_closed else {
                return Poll::Ready(Ok(()));
            };
            if self.stream.take_error()?.is_some() {
                return Poll::Ready(Ok(()));
            }
            let (stage, lasted) = self.progress.stage();
            let waits = match stage {
                Stage::Idle => false,
                // Whoever reads the body may not have seen its end yet.
                Stage::Receiving => lasted.min(half_closed.since.elapsed()) < POLL_INTERVAL,
                Stage::Waiting | Stage::Answering => {
                    // A pending write may have left part of an answer unsent, which nothing may
                    // interrupt.
                    let may_ask = self.deadline.is_none() && self.progress.takes_interim();
                    if may_ask && !half_closed.asked {
                        let sent = self.stream.try_write(INTERIM);
                        half_closed.asked = matches!(sent, Ok(INTERIM_LENGTH));
                    }
                    let is_asked = half_closed.asked && self.progress.takes_interim();
                    is_asked || half_closed.last_byte.elapsed() < QUIET_TIMEOUT
                }
            };
            if !waits {
                return Poll::Ready(Ok(()));
            }
            ready!(half_closed.look.as_mut().poll(context));
            half_closed.look.as_mut().reset(Instant::now() + POLL_INTERVAL);
        }
    }
}

const INTERIM_LENGTH: usize = INTERIM.len();

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.half_closed.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            self.half_closed = Some(HalfClosed::new());
        }
        self.poll_end(context)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.guard(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.guard(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_disconnected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let limit = Duration::from_secs(60);
        let begin = Instant::now();
        let mut guarded = Socket::new(accepted.unwrap().0, Progress::new(), limit);
        let error = guarded.write_all(&vec![0; 64 << 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= limit);
        drop(peer);
    }

    #[tokio::test(start_paused = true)]
    async fn little_is_kept_for_a_peer_that_reads_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let peer = peer.unwrap();
        // The peer's buffer holds few bytes, so the server's holds nearly all.
        peer.set_recv_buffer_size(4 << 10).unwrap();
        peer.connect(&address.into()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let limit = Duration::from_secs(60);
        let mut guarded = Socket::new(stream, Progress::new(), limit);
        let (part, mut taken) = (vec![0; 16 << 10], 0);
        while let Ok(written) = guarded.write(&part).await {
            taken += written;
        }
        assert!(taken < 4 * SEND_BUFFER, "{taken} bytes");
    }
}
