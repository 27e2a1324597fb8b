//! The testing kit itself: that its faults are real ones, and its clock honest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dtq::testing::{Drained, Step, TestQueue};
use dtq::{Status, TaskError, TaskFailure, TaskId};

#[dtq::task(max_attempts = 6, backoff(base = "60s", max = "60s", jitter = 0.0))]
async fn stubborn(fails: u32, #[ctx] ctx: dtq::Context) -> Result<u32, TaskError> {
    if ctx.attempt() <= fails {
        return Err(dtq::retryable!("attempt {} of {fails} fails", ctx.attempt()));
    }
    Ok(ctx.attempt())
}

#[dtq::task(timeout = "1m", max_attempts = 2, backoff(base = "1s", jitter = 0.0))]
async fn sleeps(seconds: u64) -> u64 {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    seconds
}

#[dtq::task(queue = "fan")]
async fn fans_out(width: u32, #[ctx] ctx: dtq::Context) -> Result<(), TaskError> {
    for n in 0..width {
        Stubborn::enqueue(0).queue(format!("out-{n}")).on(ctx.client()).await?;
    }
    Ok(())
}

#[dtq::task]
fn blocks(millis: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(millis));
    millis
}

#[dtq::task]
async fn counts(#[state] runs: Arc<AtomicU32>) -> u32 {
    runs.fetch_add(1, Ordering::SeqCst) + 1
}

fn queue() -> TestQueue {
    TestQueue::builder().state(Arc::new(AtomicU32::new(0))).build()
}

async fn attempt(queue: &TestQueue, id: TaskId) -> u32 {
    queue.inspect().task(id).await.unwrap().unwrap().attempt
}

#[tokio::test]
async fn five_retries_of_a_minute_take_no_time() {
    let real = std::time::Instant::now();
    let queue = queue();
    let start = queue.now();
    let handle = Stubborn::enqueue(5).on(&queue).await.unwrap();
    let first = queue.drain().await;
    assert_eq!((first.attempts, first.retried), (1, 1));
    assert_eq!(handle.status().await.unwrap(), Status::Retrying);
    // Drained again: a minute has not passed.
    assert_eq!(queue.drain().await, Drained::default());
    assert!(queue.now().duration_since(start).unwrap() < Duration::from_secs(1));

    queue.advance(Duration::from_secs(59)).await;
    assert_eq!(attempt(&queue, handle.id()).await, 1, "not a second early");
    queue.advance(Duration::from_secs(1)).await;
    assert_eq!(attempt(&queue, handle.id()).await, 2);
    let rest = queue.advance(Duration::from_secs(240)).await;
    assert_eq!((rest.attempts, rest.retried, rest.succeeded), (4, 3, 1));
    assert_eq!(handle.result().await.unwrap(), 6);
    assert!(real.elapsed() < Duration::from_secs(30), "{:?}", real.elapsed());
}

#[tokio::test]
async fn the_clock_moves_while_a_task_function_sleeps_and_its_timeout_strikes() {
    let queue = queue();
    let start = queue.now();
    let short = Sleeps::enqueue(50).on(&queue).await.unwrap();
    queue.drain().await;
    assert_eq!(short.result().await.unwrap(), 50);
    let took = queue.now().duration_since(start).unwrap();
    assert!((50..60).contains(&took.as_secs()), "{took:?}");

    let long = Sleeps::enqueue(3600).on(&queue).await.unwrap();
    queue.drain_all().await;
    let error = long.result().await.unwrap_err();
    assert!(
        matches!(&error, TaskFailure::Failed { error, attempts: 2 } if error.class == "timeout"),
        "{error:?}"
    );
}

#[tokio::test]
async fn tasks_that_tasks_enqueue_are_run_in_whatever_queue() {
    let queue = queue();
    FansOut::enqueue(3).on(&queue).await.unwrap();
    let drained = queue.drain().await;
    assert_eq!((drained.succeeded, queue.enqueued::<Stubborn>().len()), (4, 3));
    assert_eq!(queue.enqueued::<Stubborn>()[2].queue, "out-2");
    assert_eq!(queue.enqueued_count(), 4);
}

#[tokio::test]
async fn what_was_enqueued_is_told_with_its_options() {
    let queue = queue();
    let enqueue = Stubborn::enqueue(7).priority(9).delay(Duration::from_secs(60));
    enqueue.idempotency_key("k").metadata("trace", "t1").on(&queue).await.unwrap();
    let all = queue.enqueued::<Stubborn>();
    let [one] = &all[..] else { panic!("{} were enqueued", all.len()) };
    assert_eq!((one.fails, one.priority, one.delay), (7, 9, Some(Duration::from_secs(60))));
    assert_eq!((one.idempotency_key.as_deref(), one.max_attempts), (Some("k"), 6));
    assert_eq!(one.metadata["trace"], "t1");
    assert!(queue.enqueued::<Sleeps>().is_empty());
    assert_eq!(queue.drain().await.attempts, 0, "not due");
}

#[tokio::test]
async fn waiting_for_a_result_lets_time_pass() {
    let queue = queue();
    let handle = Stubborn::enqueue(3).on(&queue).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 4);
    let later = Stubborn::enqueue(0).delay(Duration::from_secs(86_400)).on(&queue).await.unwrap();
    assert_eq!(later.result().await.unwrap(), 1);
}

#[tokio::test]
async fn a_store_that_is_away_is_waited_for() {
    let queue = queue();
    let start = queue.now();
    queue.fail_store(5);
    let handle = Stubborn::enqueue(0).on(&queue).await.unwrap();
    queue.fail_store(20);
    assert_eq!(queue.drain().await.succeeded, 1);
    assert_eq!(handle.result().await.unwrap(), 1);
    assert!(queue.now() > start, "the pauses took their time");
}

#[tokio::test]
async fn a_producer_is_told_in_the_end() {
    let queue = queue();
    let start = queue.now();
    queue.fail_store(10_000);
    let error = Stubborn::enqueue(0).on(&queue).await.unwrap_err();
    assert!(matches!(error, dtq::EnqueueError::Store(_)), "{error:?}");
    let waited = queue.now().duration_since(start).unwrap();
    assert!((5..=11).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test]
async fn a_lost_lease_runs_the_task_again_and_the_first_changes_nothing() {
    let queue = queue();
    let handle = Counts::enqueue().on(&queue).await.unwrap();
    queue.lose_leases(1);
    let drained = queue.drain().await;
    assert_eq!((drained.attempts, drained.succeeded, drained.lost), (2, 1, 1));
    assert_eq!(attempt(&queue, handle.id()).await, 2);
    assert_eq!(handle.result().await.unwrap(), 2, "the second run's result");
}

#[tokio::test]
async fn lost_replies_change_nothing() {
    let queue = queue();
    queue.lose_replies(6);
    let handle = Counts::enqueue().on(&queue).await.unwrap();
    queue.drain().await;
    assert_eq!((handle.result().await.unwrap(), queue.enqueued_count()), (1, 1));
}

#[tokio::test]
async fn a_worker_that_is_killed_anywhere_loses_nothing() {
    for (step, runs, attempts) in
        [(Step::Fetch, 1, 2), (Step::Run, 2, 2), (Step::Finish, 1, 1), (Step::Claim, 1, 1)]
    {
        let queue = queue();
        let enqueue = Counts::enqueue().delay(Duration::from_secs(5));
        let handle = enqueue.on(&queue).await.unwrap();
        queue.crash_after(step);
        queue.advance(Duration::from_secs(5)).await;
        if matches!(step, Step::Fetch | Step::Run) {
            assert_eq!(handle.status().await.unwrap(), Status::Running, "{step:?}");
        }
        queue.advance(Duration::from_secs(45)).await;
        assert_eq!(handle.status().await.unwrap(), Status::Succeeded, "{step:?}");
        assert_eq!(handle.result().await.unwrap(), runs, "{step:?}");
        assert_eq!(attempt(&queue, handle.id()).await, attempts, "{step:?}");
    }
}

#[tokio::test]
async fn a_function_without_async_is_waited_for() {
    let queue = queue();
    let start = queue.now();
    let handle = Blocks::enqueue(50).on(&queue).await.unwrap();
    queue.drain().await;
    assert_eq!(handle.result().await.unwrap(), 50);
    assert!(queue.now().duration_since(start).unwrap() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_slow_answer_from_outside_comes_before_the_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        drop(socket);
    });
    let queue = TestQueue::builder()
        .state(Arc::new(AtomicU32::new(0)))
        .patience(Duration::from_secs(5))
        .build();
    let handle = Dials::enqueue(port).on(&queue).await.unwrap();
    queue.drain().await;
    assert_eq!(handle.result().await.unwrap(), 0);
    server.await.unwrap();
}

#[dtq::task(timeout = "10s", max_attempts = 1)]
async fn dials(port: u16) -> std::io::Result<usize> {
    use tokio::io::AsyncReadExt as _;
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    socket.read(&mut [0u8; 8]).await
}

#[tokio::test]
#[should_panic(expected = "AtomicU32")]
async fn a_state_that_nobody_gave_is_told() {
    let queue = TestQueue::new();
    Counts::enqueue().on(&queue).await.unwrap();
    queue.drain().await;
}

#[tokio::test]
async fn a_paused_queue_is_not_drained_and_time_does_not_run_away() {
    let queue = queue();
    let start = queue.now();
    queue.inspect().pause("default").await.unwrap();
    Stubborn::enqueue(0).on(&queue).await.unwrap();
    assert_eq!(queue.drain().await.attempts, 0);
    assert!(queue.now().duration_since(start).unwrap() < Duration::from_secs(1));
    queue.inspect().resume("default").await.unwrap();
    assert_eq!(queue.drain().await.succeeded, 1);
}
