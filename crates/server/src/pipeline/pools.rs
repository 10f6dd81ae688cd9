//! Threads for blocking work on requests: bounded in number, shared by clients in turns, given up when
//! their work does not end, and never waited for when the process ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use engine::{ClientId, ClientQueue, PoolLoad, QueuePermit, QueuePermits};
use tokio::sync::oneshot;

use crate::error::{ApiError, ErrorCode};
use crate::http::settings::Settings;

/// Bodies of at most this many bytes have threads of their own, so that no short request waits
/// behind a long one.
pub(crate) const SHORT_BODY: usize = 64 << 10;
/// Grammars that wait for a thread of their pool; further ones get 429. Clients share these permits as
/// they share the engine's queue.
pub(crate) const WAITING_GRAMMARS: u32 = 32;
/// Maximum time for reading and encoding one body: far more than the longest one takes.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Parts in which the time of a job is counted.
const TIME_SLICES: u32 = 4;

/// The pools of a server.
#[derive(Debug)]
pub(crate) struct Pools {
    /// Reading and encoding bodies of at most [`SHORT_BODY`] bytes: one thread per core.
    pub short: Pool,
    /// Reading and encoding longer bodies: one thread per two cores, which bounds the memory of
    /// decoded requests too.
    pub long: Pool,
    /// Compiling grammars: one thread per two cores and at least two, so that a client's grammar need
    /// not wait for another client's; at most [`WAITING_GRAMMARS`] in the queue.
    pub compile: Pool,
}

impl Pools {
    /// Pools for this machine; no thread runs yet.
    pub fn new(settings: &Settings) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let half = (cores / 2).max(1);
        let grammars = half.max(2);
        Self {
            short: Pool::new("encode", cores, BODY_TIMEOUT),
            long: Pool::new("encode_long", half, BODY_TIMEOUT),
            compile: Pool::new("compile", grammars, settings.timeouts.grammar)
                .with_queue(WAITING_GRAMMARS),
        }
    }

    /// The pool for a body of `bytes` bytes.
    pub fn for_body(&self, bytes: usize) -> &Pool {
        if bytes <= SHORT_BODY { &self.short } else { &self.long }
    }

    /// All pools.
    pub fn all(&self) -> [&Pool; 3] {
        [&self.short, &self.long, &self.compile]
    }
}

/// At most a fixed number of threads, each with one job. The jobs of clients begin in turns.
///
/// A job holds its thread until it ends, also if its request is gone by then, or until it is over its
/// time: then its request is refused and the next job begins. The job itself cannot be ended. Up to
/// [`PoolLoad::most_stuck`] jobs may be stuck; with more of them the pool takes no job until one ends. A
/// job whose request is gone before it begins does not begin. The runtime does not know these threads,
/// so that its end waits for none of them.
#[derive(Debug)]
pub(crate) struct Pool {
    name: &'static str,
    /// Maximum time of one job; zero = no limit.
    limit: Duration,
    /// The permits of the queue; `None` = it has no bound.
    permits: Option<Arc<QueuePermits>>,
    turns: Arc<Turns>,
}

/// Whose work a job is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The client.
    pub client: ClientId,
    /// The field that asks for the work; `None` = the request as a whole.
    pub field: Option<&'static str>,
}

/// The permit and the turn that a job keeps until it ends or is given up.
struct Reservation {
    _permit: Option<QueuePermit>,
    _turn: Turn,
}

/// Tells a job whether its request still waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Interest(Weak<()>);

impl Interest {
    /// A request that waits until the first value is dropped.
    pub fn new() -> (Arc<()>, Self) {
        let request = Arc::new(());
        let interest = Self(Arc::downgrade(&request));
        (request, interest)
    }

    /// Ends a job whose request is gone.
    ///
    /// # Errors
    /// The request is gone; nobody reads the error.
    pub fn check(&self) -> Result<(), ApiError> {
        match self.0.strong_count() {
            0 => Err(ApiError::internal()),
            _ => Ok(()),
        }
    }
}

impl Pool {
    /// At most `threads` jobs at a time, each for at most `limit`, and any number in the queue.
    pub fn new(name: &'static str, threads: usize, limit: Duration) -> Self {
        let free = u32::try_from(threads).unwrap_or(u32::MAX);
        Self {
            name,
            limit,
            permits: None,
            turns: Arc::new(Turns {
                state: Mutex::new(State { free, ..State::default() }),
                threads: free,
                most_stuck: PoolLoad::most_stuck(threads),
            }),
        }
    }

    /// The same pool with at most `waiting` jobs in the queue, beside those that run.
    pub fn with_queue(self, waiting: u32) -> Self {
        let permits = QueuePermits::new(self.turns.threads + waiting);
        Self { permits: Some(Arc::new(permits)), ..self }
    }

    /// The name of the pool and of its threads.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The pool's present load.
    pub fn load(&self) -> PoolLoad {
        self.turns.load()
    }

    /// Runs `work` on a thread of the pool.
    ///
    /// # Errors
    /// The errors of `work`; `overloaded` if the queue is full or the system gives no thread;
    /// `threads_stuck` if too many jobs do not end; `invalid_value` if `work` is over its time;
    /// `internal_error` if it panics.
    pub async fn run<T: Send + 'static>(
        &self,
        origin: Origin,
        work: impl FnOnce(&Interest) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.check()?;
        let permits = self.permits.as_ref();
        let permit = permits.map(|permits| permits.take(origin.client).ok_or_else(|| self.full()));
        let permit = permit.transpose()?;
        let turn = self.turns.take(origin.client).await?;
        self.check()?;
        let (request, interest) = Interest::new();
        let (ends, end) = oneshot::channel();
        let job = move || {
            let done = interest.check().and_then(|()| work(&interest));
            // Fails if the job was given up.
            let _ = ends.send(done);
        };
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(job).map_err(|error| {
            tracing::error!(%error, pool = self.name, "the system gives no thread");
            self.full()
        })?;
        let (answers, answer) = oneshot::channel();
        // Not a part of the request, which may end before the job.
        let held = Reservation { _permit: permit, _turn: turn };
        tokio::spawn(self.watch(origin, end, held, answers));
        let answer = answer.await;
        drop(request);
        answer.map_err(|_| ApiError::internal())?
    }

    /// Refuses work while too many threads are stuck.
    fn check(&self) -> Result<(), ApiError> {
        check(self.name, self.load())
    }

    /// Waits for the end of a job, gives its thread to the next one, and answers its request.
    fn watch<T: Send + 'static>(
        &self,
        origin: Origin,
        mut end: oneshot::Receiver<Result<T, ApiError>>,
        held: Reservation,
        answers: oneshot::Sender<Result<T, ApiError>>,
    ) -> impl Future<Output = ()> + Send + use<T> {
        let (limit, name) = (self.limit, self.name);
        let turns = Arc::clone(&self.turns);
        async move {
            if let Some(done) = within(limit, &mut end).await {
                drop(held);
                let _ = answers.send(done.unwrap_or_else(|_| Err(ApiError::internal())));
                return;
            }
            let stuck = turns.stick();
            drop(held);
            let most_stuck = turns.most_stuck;
            let seconds = limit.as_secs_f64();
            tracing::error!(
                pool = name,
                stuck,
                most_stuck,
                "work that does not end is given up after {seconds} s; its thread is replaced"
            );
            let _ = answers.send(Err(late(origin.field, seconds)));
            let _ = end.await;
            let stuck = turns.unstick();
            tracing::warn!(pool = name, stuck, "work that was given up has ended");
        }
    }

    fn full(&self) -> ApiError {
        let jobs = WAITING_GRAMMARS / self.turns.threads.max(1);
        let message = format!("too many requests wait for the pool `{}`", self.name);
        ApiError::busy(message, jobs)
    }
}

/// The end of a job, if it comes within `limit`, zero = at any time. A pause of the process counts as a
/// part of the limit.
async fn within<T>(limit: Duration, mut end: &mut oneshot::Receiver<T>) -> Option<JobResult<T>> {
    if limit.is_zero() {
        return Some(end.await);
    }
    for _ in 0..TIME_SLICES {
        if let Ok(ended) = tokio::time::timeout(limit / TIME_SLICES, &mut end).await {
            return Some(ended);
        }
    }
    None
}

type JobResult<T> = Result<T, oneshot::error::RecvError>;

/// Refuses work for the pool `name` while too many of its threads are stuck.
///
/// # Errors
/// `threads_stuck`.
pub(crate) fn check(name: &str, load: PoolLoad) -> Result<(), ApiError> {
    match load.is_exhausted() {
        true => Err(ApiError::threads_stuck(name, load.stuck)),
        false => Ok(()),
    }
}

/// The error of work that `field` asked for, or the request as a whole.
fn late(field: Option<&str>, seconds: f64) -> ApiError {
    let rest = format!("is refused: the work on it takes more than {seconds} s");
    match field {
        Some(field) => ApiError::field(ErrorCode::InvalidValue, field, rest),
        None => ApiError::new(ErrorCode::InvalidValue, format!("the request {rest}")),
    }
}

/// Hands the threads of a pool to jobs.
#[derive(Debug)]
struct Turns {
    state: Mutex<State>,
    threads: u32,
    most_stuck: u32,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that no job has.
    free: u32,
    stuck: u32,
    waiting: ClientQueue<oneshot::Sender<Turn>>,
}

/// One of the threads; handed to the next job when dropped.
#[derive(Debug)]
struct Turn(Option<Arc<Turns>>);

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> PoolLoad {
        let state = self.state();
        PoolLoad {
            running: self.threads - state.free,
            waiting: u32::try_from(state.waiting.len()).unwrap_or(u32::MAX),
            stuck: state.stuck,
            most_stuck: self.most_stuck,
        }
    }

    /// Waits for a thread.
    async fn take(self: &Arc<Self>, client: ClientId) -> Result<Turn, ApiError> {
        let turn = {
            let mut state = self.state();
            if let Some(free) = state.free.checked_sub(1) {
                state.free = free;
                return Ok(Turn(Some(Arc::clone(self))));
            }
            // Jobs whose request is gone take no turn and no room.
            state.waiting.remove(oneshot::Sender::is_closed);
            let (sender, turn) = oneshot::channel();
            state.waiting.push(client, sender);
            turn
        };
        turn.await.map_err(|_| ApiError::internal())
    }

    /// Counts a job that is given up; their number.
    fn stick(&self) -> u32 {
        let mut state = self.state();
        state.stuck += 1;
        state.stuck
    }

    /// The end of a job that was given up.
    fn unstick(&self) -> u32 {
        let mut state = self.state();
        state.stuck -= 1;
        state.stuck
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        while let Some(turns) = self.0.take() {
            let mut state = turns.state();
            let Some(next) = state.waiting.pop() else {
                state.free += 1;
                return;
            };
            drop(state);
            if let Err(mut turn) = next.send(Self(Some(turns))) {
                // Its request is gone; the thread is still to be handed on.
                self.0 = turn.0.take();
            }
        }
    }
}

#[cfg(test)]
mod tests;
