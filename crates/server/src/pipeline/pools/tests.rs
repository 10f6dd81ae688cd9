//! Places are given back when work ends, and nothing waits for work that nobody wants.

use std::sync::mpsc;
use std::time::Duration;

use tokio::time::timeout;

use engine::ClientId;

use super::{Interest, Origin, Pool};
use crate::error::{ApiError, ErrorCode};

/// A job that runs until the sender of its second value is gone; the first one receives its start.
fn held() -> (
    impl FnOnce(&Interest) -> Result<u32, ApiError> + Send + 'static,
    mpsc::Receiver<()>,
    mpsc::Sender<()>,
) {
    let (started, starts) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let job = move |_: &Interest| {
        started.send(()).unwrap();
        let _ = held.recv();
        Ok(1)
    };
    (job, starts, release)
}

/// One thread, `waiting` permits in the queue, no limit of time.
fn pool(waiting: u32) -> Pool {
    Pool::new("test", 1, Duration::ZERO).with_queue(waiting)
}

fn of(client: u64) -> Origin {
    Origin { client: ClientId(client), field: Some("grammar") }
}

const ANY: Origin = Origin { client: ClientId(0), field: None };

const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_permit_is_given_back_when_the_work_ends_and_not_when_the_request_does() {
    let pool = pool(8);
    let (job, starts, release) = held();
    assert!(timeout(SOON, pool.run(ANY, job)).await.is_err());
    starts.recv().unwrap();
    // The request is gone, its work is not.
    assert!(timeout(SOON, pool.run(ANY, |_| Ok(2))).await.is_err());
    drop(release);
    let next = timeout(LATE, pool.run(ANY, |_| Ok(3))).await;
    assert_eq!(next.unwrap(), Ok(3));
}

#[tokio::test]
async fn work_without_a_request_does_not_begin_and_learns_that_it_may_end() {
    let (request, interest) = Interest::new();
    assert_eq!(interest.check(), Ok(()));
    drop(request);
    assert!(interest.check().is_err());

    let pool = pool(8);
    let (job, starts, release) = held();
    assert!(timeout(SOON, pool.run(ANY, job)).await.is_err());
    starts.recv().unwrap();
    let (begun, begins) = mpsc::channel();
    let waiting = pool.run(ANY, move |_| {
        begun.send(()).unwrap();
        Ok(())
    });
    assert!(timeout(SOON, waiting).await.is_err());
    drop(release);
    assert_eq!(timeout(LATE, pool.run(ANY, |_| Ok(4))).await.unwrap(), Ok(4));
    assert!(begins.recv().is_err(), "the abandoned job began");
}

#[tokio::test]
async fn a_full_queue_refuses_and_names_a_time() {
    let pool = pool(0);
    let (job, starts, release) = held();
    assert!(timeout(SOON, pool.run(ANY, job)).await.is_err());
    starts.recv().unwrap();
    let error = pool.run(ANY, |_| Ok(())).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Overloaded);
    assert!(error.retry_after.is_some());
    drop(release);
}

#[tokio::test]
async fn a_panic_is_one_failed_request() {
    let pool = pool(0);
    let failed = pool.run::<()>(ANY, |_| panic!("told to")).await.unwrap_err();
    assert_eq!(failed.code, ErrorCode::InternalError);
    let mut next = pool.run(ANY, |_| Ok(5)).await;
    // The thread gives its permit back shortly after its answer.
    while next.is_err() {
        tokio::task::yield_now().await;
        next = pool.run(ANY, |_| Ok(5)).await;
    }
    assert_eq!(next, Ok(5));
}

#[test]
fn the_end_of_a_runtime_waits_for_no_job() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let pool = pool(0);
    let (job, starts, release) = held();
    let gone = runtime.block_on(async { timeout(SOON, pool.run(ANY, job)).await });
    assert!(gone.is_err());
    starts.recv().unwrap();
    drop(runtime);
    drop(release);
}

/// A job that does not end is given up after its time: its request is refused, and the next one has
/// its thread.
#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_given_up() {
    let pool = Pool::new("test", 1, Duration::from_secs(3)).with_queue(8);
    let (job, starts, release) = held();
    let mut left = Box::pin(pool.run(of(1), job));
    assert!(timeout(Duration::ZERO, &mut left).await.is_err());
    starts.recv().unwrap();
    drop(left);
    let (job, _starts, held_too) = held();
    let (late, next) = tokio::join!(pool.run(of(2), job), async {
        tokio::task::yield_now().await;
        pool.load()
    });
    assert_eq!((next.running, next.waiting), (1, 1));
    let late = late.unwrap_err();
    assert_eq!(late.code, ErrorCode::InvalidValue);
    assert_eq!(late.param.as_deref(), Some("grammar"));
    assert!(late.message.contains("takes more than 3 s"), "{late}");
    let load = pool.load();
    assert_eq!((load.stuck, load.most_stuck, load.running), (2, 2, 0));
    let refused = pool.run(of(3), |_| Ok(1)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::ThreadsStuck);

    drop((release, held_too));
    while pool.load().stuck > 0 {
        tokio::time::sleep(SOON).await;
    }
    tokio::time::resume();
    assert_eq!(pool.run(of(3), |_| Ok(7)).await, Ok(7));
}

/// Time in which the process does not run is at most a part of a job's time.
#[tokio::test(start_paused = true)]
async fn a_pause_of_the_process_gives_up_no_work() {
    let pool = Pool::new("test", 1, Duration::from_secs(240));
    let (job, starts, release) = held();
    let mut running = Box::pin(pool.run(ANY, job));
    assert!(timeout(Duration::ZERO, &mut running).await.is_err());
    starts.recv().unwrap();
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    tokio::time::resume();
    drop(release);
    assert_eq!(timeout(LATE, running).await.unwrap(), Ok(1));
}

/// Six slow grammars of one client make another one wait for one of them.
#[tokio::test]
async fn clients_take_turns() {
    let pool = Pool::new("test", 1, Duration::ZERO).with_queue(8);
    let order = std::sync::Mutex::new(Vec::new());
    let (job, starts, release) = held();
    let first = pool.run(of(1), job);
    let note = |client: u64| {
        let (pool, order) = (&pool, &order);
        async move {
            pool.run(of(client), |_| Ok(())).await.unwrap();
            order.lock().unwrap().push(client);
        }
    };
    let others = async {
        while starts.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        let open = async {
            while pool.load().waiting < 6 {
                tokio::task::yield_now().await;
            }
            drop(release);
        };
        tokio::join!(note(1), note(1), note(1), note(1), note(1), note(2), open);
    };
    let (first, ()) = tokio::join!(first, others);
    assert_eq!(first, Ok(1));
    let index = order.lock().unwrap().iter().position(|client| *client == 2);
    assert!(index <= Some(1), "{:?}", order.lock().unwrap());
}

#[tokio::test]
async fn a_flood_of_one_client_leaves_permits_to_others() {
    let pool = Pool::new("test", 1, Duration::ZERO).with_queue(15);
    let (job, starts, release) = held();
    let mut running = Box::pin(pool.run(of(1), job));
    assert!(timeout(SOON, &mut running).await.is_err());
    starts.recv().unwrap();
    let mut flood: Vec<_> = (0..15).map(|_| Box::pin(pool.run(of(1), |_| Ok(0)))).collect();
    for waiting in &mut flood {
        assert!(timeout(Duration::ZERO, waiting).await.is_err());
    }
    let full = pool.run(of(1), |_| Ok(0)).await.unwrap_err();
    assert_eq!(full.code, ErrorCode::Overloaded);
    let mut other = Box::pin(pool.run(of(2), |_| Ok(2)));
    assert!(timeout(SOON, &mut other).await.is_err(), "it waits");
    drop((release, flood));
    assert_eq!(timeout(LATE, other).await.unwrap(), Ok(2));
}
