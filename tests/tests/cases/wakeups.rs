//! Work that becomes runnable starts at once (SPEC 7.2, 8).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use dtq::{Status, Worker};
use dtq_tests::{PATIENCE, client, config};

use super::Server;

/// When each task began, by label.
static BEGAN: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());

fn began(label: &str) -> Option<Instant> {
    let began = BEGAN.lock().unwrap();
    began.iter().find(|(of, _)| of == label).map(|(_, at)| *at)
}

pub(super) fn unique(label: &str) -> String {
    format!("{label}-{:x}", fastrand::u64(..))
}

#[dtq::task(max_attempts = 1)]
pub(super) async fn begin(label: String) {
    BEGAN.lock().unwrap().push((label, Instant::now()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_7_2_h20_every_worker_of_a_process_is_woken_at_once_for_each_of_its_queues() {
    let server = Server::start();
    let client = client(config(&server.url()));
    let worker =
        |queues: [&'static str; 2]| Worker::builder().client(client.clone()).queues(queues).start();
    let workers = [worker(["a", "b"]).await.unwrap(), worker(["c", "d"]).await.unwrap()];
    let mut slowest = Vec::new();
    for queue in ["a", "b", "c", "d"] {
        let mut waits = Vec::new();
        for _ in 0..7 {
            let label = unique(queue);
            let asked = Instant::now();
            let handle = Begin::enqueue(label.clone()).queue(queue).on(&client).await.unwrap();
            handle.result_within(PATIENCE).await.unwrap();
            waits.push(began(&label).unwrap() - asked);
            // Both are idle again, and wait.
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        waits.sort_unstable();
        slowest.push((queue, waits[3]));
    }
    // The poll alone would take half a second on average.
    assert!(slowest.iter().all(|(_, median)| *median < Duration::from_millis(100)), "{slowest:?}");
    for worker in workers {
        worker.shutdown();
        worker.join().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_8_4_a_single_delay_is_accurate_and_never_early() {
    let server = Server::start();
    let client = client(config(&server.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let mut late = Vec::new();
    for n in 0..21 {
        let label = unique("accurate");
        let delay = Duration::from_millis(100 + 7 * n);
        let asked = Instant::now();
        let handle = Begin::enqueue(label.clone()).delay(delay).on(&client).await.unwrap();
        let accepted = Instant::now();
        handle.result_within(PATIENCE).await.unwrap();
        let at = began(&label).unwrap();
        assert!(at + Duration::from_millis(1) >= asked + delay, "C5, I5: early");
        late.push(at.saturating_duration_since(accepted + delay));
    }
    late.sort_unstable();
    // Its 20 ms are for an idle machine: on a busy one, for the better half.
    assert!(
        late[10] < Duration::from_millis(20) || late[5] < Duration::from_millis(15),
        "{late:?}"
    );
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test]
async fn spec_7_1_a_paused_queue_is_skipped_and_goes_on_at_once_when_it_is_resumed() {
    let server = Server::start();
    let client = client(config(&server.url()));
    let worker = Worker::builder().client(client.clone()).queues(["p", "q"]).start().await.unwrap();
    client.inspect().pause("p").await.unwrap();
    let (paused, runs) = (unique("paused"), unique("runs"));
    let waits = Begin::enqueue(paused.clone()).queue("p").on(&client).await.unwrap();
    let other = Begin::enqueue(runs.clone()).queue("q").on(&client).await.unwrap();
    other.result_within(PATIENCE).await.unwrap();
    assert_eq!((waits.status().await.unwrap(), began(&paused)), (Status::Queued, None));
    client.inspect().resume("p").await.unwrap();
    waits.result_within(PATIENCE).await.unwrap();
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c35_with_ten_schedulers_at_once_each_delayed_task_starts_once_and_in_time() {
    let server = Server::start();
    let client = client(config(&server.url()).concurrency(2));
    let mut workers = Vec::new();
    for _ in 0..10 {
        workers.push(Worker::builder().client(client.clone()).start().await.unwrap());
    }
    let label = unique("ten");
    let asked = Instant::now();
    let delay = |n: u64| Duration::from_millis(200 + 3 * n);
    let tasks = (0..100).map(|n| Begin::enqueue(format!("{label}-{n}.")).delay(delay(n)));
    for handle in client.enqueue_all(tasks).await.unwrap() {
        handle.result_within(PATIENCE).await.unwrap();
    }
    let all = BEGAN.lock().unwrap().clone();
    for n in 0..100 {
        let own: Vec<_> = all.iter().filter(|(of, _)| *of == format!("{label}-{n}.")).collect();
        assert_eq!(own.len(), 1, "task {n}");
        assert!(own[0].1 + Duration::from_millis(1) >= asked + delay(n), "early");
    }
    for worker in workers {
        worker.shutdown();
        worker.join().await.unwrap();
    }
}

/// Fails, and tells when each attempt began.
#[dtq::task(max_attempts = 2, backoff(base = "600ms", max = "600ms", jitter = 0.5))]
async fn fail(label: String) -> Result<(), dtq::TaskError> {
    BEGAN.lock().unwrap().push((label, Instant::now()));
    Err(dtq::retryable!("again"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c37_simultaneous_failures_are_retried_all_over_the_window_of_the_jitter() {
    let server = Server::start();
    let client = client(config(&server.url()).concurrency(100));
    let label = unique("storm");
    let tasks = (0..400).map(|n| Fail::enqueue(format!("{label}-{n}.")));
    let handles = client.enqueue_all(tasks).await.unwrap();
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    for handle in &handles {
        assert!(handle.result_within(PATIENCE).await.is_err());
    }
    let all = BEGAN.lock().unwrap().clone();
    let waited = |n: usize| {
        let of = format!("{label}-{n}.");
        let own: Vec<_> = all.iter().filter(|(label, _)| *label == of).map(|(_, at)| *at).collect();
        assert_eq!(own.len(), 2);
        own[1] - own[0]
    };
    let mut waits: Vec<_> = (0..handles.len()).map(waited).collect();
    waits.sort_unstable();
    // 300 to 900 ms, evenly; a busy machine adds to each.
    let at = |share: usize| waits[waits.len() * share / 100].as_millis();
    assert!(waits[0] >= Duration::from_millis(299), "{:?}", waits[0]);
    assert!(at(80) - at(20) > 240, "20 %: {}, 80 %: {}", at(20), at(80));
    worker.shutdown();
    worker.join().await.unwrap();
}
