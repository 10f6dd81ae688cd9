//! Signals, on a thread of their own: they work whatever the engine and the server do.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::exit;
use crate::supervisor;
#[cfg(unix)]
use unix::Sources;
#[cfg(windows)]
use windows::Sources;

/// The signals of this process. The first SIGTERM or SIGINT begins the shutdown, the second ends the
/// process at once; SIGHUP reloads. On Windows, Ctrl-C and the end of the session begin the shutdown,
/// and nothing reloads.
pub struct Signals {
    stop: watch::Receiver<bool>,
    serving: Arc<AtomicBool>,
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
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
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
        told.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
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

/// The request of a signal.
#[cfg_attr(windows, expect(dead_code, reason = "Windows has no signal that reloads"))]
enum SignalRequest {
    /// The end of the process.
    End,
    /// Reloading.
    Reload,
}

/// Waits for a signal that ends the process; meanwhile reloads.
async fn end(sources: &mut Sources, reload: &Reload) {
    while let SignalRequest::Reload = sources.next().await {
        reload.start();
    }
}

async fn handle(
    mut sources: Sources,
    reload: &Reload,
    stopping: &watch::Sender<bool>,
    serving: &AtomicBool,
) {
    end(&mut sources, reload).await;
    supervisor::stopping();
    if !serving.load(Ordering::Relaxed) {
        exit::at_once(0);
    }
    stopping.send_replace(true);
    say!("draining; Ctrl-C again, or a second SIGTERM, ends now");
    end(&mut sources, reload).await;
    exit::at_once(exit::INTERRUPTED);
}

/// The work of SIGHUP.
struct Reload {
    run: Arc<dyn Fn() + Send + Sync>,
    /// The start of the present reload.
    since: Arc<Mutex<Option<Instant>>>,
    /// Time after which one that does not end is given up: it reads a pipe that nobody writes.
    limit: Duration,
}

impl Reload {
    fn new(run: impl Fn() + Send + Sync + 'static) -> Self {
        Self { run: Arc::new(run), since: Arc::default(), limit: Duration::from_secs(10) }
    }

    /// Reads files, and a file may block: the thread of the signals does not wait.
    fn start(&self) {
        let begun = Instant::now();
        let mut since = lock(&self.since);
        match *since {
            Some(before) if before.elapsed() < self.limit => return,
            Some(_) => tracing::error!("SIGHUP: the last reload does not end and is given up"),
            None => {}
        }
        *since = Some(begun);
        drop(since);
        let (run, since) = (Arc::clone(&self.run), Arc::clone(&self.since));
        let thread = std::thread::Builder::new().name("reload".to_owned());
        let started = thread.spawn(move || {
            run();
            lock(&since).take_if(|present| *present == begun);
        });
        if let Err(error) = started {
            lock(&self.since).take();
            tracing::error!(%error, "reloading failed");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reload that never ends is given up at the first signal after its time; one that runs is not
    /// disturbed.
    #[test]
    fn a_reload_that_does_not_end_prevents_no_later_one() {
        let (begun, begins) = mpsc::channel();
        let (gate, shut) = mpsc::channel::<()>();
        let shut = Mutex::new(shut);
        let run = move || {
            begun.send(()).unwrap();
            // A second one ends at once.
            if let Ok(shut) = shut.try_lock() {
                let _ = shut.recv();
            }
        };
        let mut reload = Reload::new(run);
        reload.start();
        begins.recv().unwrap();
        reload.start();
        assert!(begins.try_recv().is_err(), "two at once");
        reload.limit = Duration::ZERO;
        reload.start();
        begins.recv().unwrap();
        drop(gate);
    }
}
