//! Signals, on a thread of their own: they work whatever the engine and the server do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit;
use crate::supervisor;

/// The signals of this process. The first SIGTERM or SIGINT begins the shutdown, the second ends the
/// process at once; SIGHUP reloads.
pub struct Signals {
    stop: watch::Receiver<bool>,
    serving: Arc<AtomicBool>,
}

struct Sources {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    /// Handles signals from now on; `reload` runs on a thread of its own, once at a time.
    ///
    /// # Errors
    /// The operating system gives no thread or no handler.
    pub fn listen(reload: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let (stopping, stop) = watch::channel(false);
        let serving = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let reload = Reload::new(reload);
        let seen = Arc::clone(&serving);
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build();
            let sources = runtime.and_then(|runtime| {
                let sources = {
                    let _context = runtime.enter();
                    Sources::new()?
                };
                Ok((runtime, sources))
            });
            match sources {
                Ok((runtime, sources)) => {
                    let _ = tell.send(Ok(()));
                    runtime.block_on(handle(sources, &reload, &stopping, &seen));
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })?;
        told.recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(Self { stop, serving })
    }

    /// Completes at the first SIGTERM or SIGINT.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.clone();
        async move {
            // The thread lives as long as the process.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// From now on the first signal drains; before, nothing is under way and it ends the process.
    pub fn serving(&self) {
        self.serving.store(true, Ordering::Relaxed);
    }
}

impl Sources {
    fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    async fn end(&mut self, reload: &Reload) {
        loop {
            tokio::select! {
                _ = self.term.recv() => return,
                _ = self.int.recv() => return,
                _ = self.hup.recv() => reload.start(),
            }
        }
    }
}

async fn handle(
    mut sources: Sources,
    reload: &Reload,
    stopping: &watch::Sender<bool>,
    serving: &AtomicBool,
) {
    sources.end(reload).await;
    supervisor::stopping();
    if !serving.load(Ordering::Relaxed) {
        exit::at_once(0);
    }
    stopping.send_replace(true);
    sources.end(reload).await;
    exit::at_once(exit::INTERRUPTED);
}

/// What SIGHUP does.
struct Reload {
    run: Arc<dyn Fn() + Send + Sync>,
    runs: Arc<AtomicBool>,
}

impl Reload {
    fn new(run: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            run: Arc::new(run),
            runs: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Reads files, and a file may block: the thread of the signals does not wait.
    fn start(&self) {
        if self.runs.swap(true, Ordering::Relaxed) {
            return;
        }
        let (run, runs) = (Arc::clone(&self.run), Arc::clone(&self.runs));
        let thread = std::thread::Builder::new().name("reload".to_owned());
        let started = thread.spawn(move || {
            run();
            runs.store(false, Ordering::Relaxed);
        });
        if let Err(error) = started {
            self.runs.store(false, Ordering::Relaxed);
            tracing::error!(%error, "reloading failed");
        }
    }
}
