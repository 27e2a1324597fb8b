//! Leases hold while a task runs, whatever its worker's runtime does and however its peers are
//! configured (SPEC 7.4, 7.5).

use std::time::Duration;

use dtq::{Client, Handle, Status, Task, Worker};
use dtq_tests::{PATIENCE, client, config, until};

use super::Server;
use super::shutdown::{note, ran, unique};

#[dtq::task(timeout_ms = 60000, max_attempts = 3)]
pub(super) async fn hold(label: String, ms: u64) {
    note(&label);
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[dtq::task(timeout_ms = 60000, max_attempts = 3)]
async fn hold_blocking(label: String, ms: u64) {
    note(&label);
    std::thread::sleep(Duration::from_millis(ms));
}

pub(super) async fn succeeded_at_once<T: Task>(client: &Client, handles: &[Handle<T>])
where
    T::Output: serde::de::DeserializeOwned,
{
    for handle in handles {
        handle.result_within(PATIENCE).await.map(drop).unwrap();
        let info = client.inspect().task(handle.id()).await.unwrap().unwrap();
        assert_eq!((info.status, info.attempt), (Status::Succeeded, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30b_workers_of_different_visibility_timeouts_rob_each_other_of_nothing() {
    let server = Server::start();
    let of =
        |visibility| client(config(&server.url()).concurrency(4).visibility_timeout(visibility));
    let short = of(Duration::from_millis(450));
    let long = of(Duration::from_secs(60));
    let mut workers = Vec::new();
    for client in [&short, &long, &short] {
        workers.push(Worker::builder().client(client.clone()).start().await.unwrap());
    }
    let label = unique("fleet");
    let mut handles = Vec::new();
    for _ in 0..12 {
        handles.push(Hold::enqueue(label.clone(), 2000).on(&long).await.unwrap());
    }
    succeeded_at_once(&long, &handles).await;
    assert_eq!(ran(&label), 12);
    for worker in workers {
        worker.shutdown();
        worker.join().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn c9_with_every_thread_of_the_runtime_blocked_no_lease_lapses() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_millis(450)));
    let label = unique("blocked");
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(HoldBlocking::enqueue(label.clone(), 1200).on(&client).await.unwrap());
    }
    // A runtime of two threads, both blocked throughout, and without timers: all are dtq's own. The
    // peer's reaper finds nothing lapsed.
    let (blocked, (all, ended)) = (client.clone(), tokio::sync::oneshot::channel::<()>());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        runtime.unwrap().block_on(async {
            let worker = Worker::builder().client(blocked).start().await.unwrap();
            let _ = ended.await;
            worker.shutdown();
            worker.join().await.unwrap();
        });
    });
    until("two run", async || ran(&label) == 2).await;
    let peer = Worker::builder().client(client.clone()).queues(["other"]).start().await.unwrap();
    succeeded_at_once(&client, &handles).await;
    assert_eq!(ran(&label), 4);
    drop(all);
    thread.join().unwrap();
    peer.shutdown();
    peer.join().await.unwrap();
}
