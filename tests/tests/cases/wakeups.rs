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
