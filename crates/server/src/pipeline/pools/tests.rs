//! Places are given back when work ends, and nothing waits for work that nobody wants.

use std::sync::mpsc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Pool, Wanted};
use crate::error::{ApiError, ErrorCode};

/// A job that runs until the sender of its second value is gone; the first one receives its start.
fn held() -> (
    impl FnOnce(&Wanted) -> Result<u32, ApiError> + Send + 'static,
    mpsc::Receiver<()>,
    mpsc::Sender<()>,
) {
    let (started, starts) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let job = move |_: &Wanted| {
        started.send(()).unwrap();
        let _ = held.recv();
        Ok(1)
    };
    (job, starts, release)
}

const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_place_is_given_back_when_the_work_ends_and_not_when_the_request_does() {
    let pool = Pool::new("test", 1, 8);
    let (job, starts, release) = held();
    assert!(timeout(SOON, pool.run(job)).await.is_err());
    starts.recv().unwrap();
    // The request is gone, its work is not.
    assert!(timeout(SOON, pool.run(|_| Ok(2))).await.is_err());
    drop(release);
    let next = timeout(LATE, pool.run(|_| Ok(3))).await;
    assert_eq!(next.unwrap(), Ok(3));
}

#[tokio::test]
async fn work_without_a_request_does_not_begin_and_learns_that_it_may_end() {
    let (request, wanted) = Wanted::new();
    assert_eq!(wanted.check(), Ok(()));
    drop(request);
    assert!(wanted.check().is_err());

    let pool = Pool::new("test", 1, 8);
    let (job, starts, release) = held();
    assert!(timeout(SOON, pool.run(job)).await.is_err());
    starts.recv().unwrap();
    let (begun, begins) = mpsc::channel();
    let waiting = pool.run(move |_| {
        begun.send(()).unwrap();
        Ok(())
    });
    assert!(timeout(SOON, waiting).await.is_err());
    drop(release);
    assert_eq!(timeout(LATE, pool.run(|_| Ok(4))).await.unwrap(), Ok(4));
    assert!(begins.recv().is_err(), "the abandoned job began");
}

#[tokio::test]
async fn a_full_queue_refuses_and_names_a_time() {
    let pool = Pool::new("test", 1, 0);
    let (job, starts, release) = held();
    assert!(timeout(SOON, pool.run(job)).await.is_err());
    starts.recv().unwrap();
    let error = pool.run(|_| Ok(())).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Overloaded);
    assert!(error.retry_after.is_some());
    drop(release);
}

#[tokio::test]
async fn a_panic_is_one_failed_request() {
    let pool = Pool::new("test", 1, 0);
    let failed = pool.run::<()>(|_| panic!("told to")).await.unwrap_err();
    assert_eq!(failed.code, ErrorCode::InternalError);
    let mut next = pool.run(|_| Ok(5)).await;
    // The thread gives its place back shortly after its answer.
    while next.is_err() {
        tokio::task::yield_now().await;
        next = pool.run(|_| Ok(5)).await;
    }
    assert_eq!(next, Ok(5));
}

#[test]
fn the_end_of_a_runtime_waits_for_no_job() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let pool = Pool::new("test", 1, 0);
    let (job, starts, release) = held();
    let gone = runtime.block_on(async { timeout(SOON, pool.run(job)).await });
    assert!(gone.is_err());
    starts.recv().unwrap();
    drop(runtime);
    drop(release);
}
