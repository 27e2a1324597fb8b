//! Workers that shut down, stand still or lose a lease on a redis-server, and what only that can show.

use std::time::{Duration, Instant};

use dtq::{Status, Worker};
use dtq_tests::{PATIENCE, RedisServer as Server, client, config, until};

#[path = "cases/leases.rs"]
mod leases;
#[path = "cases/shutdown.rs"]
mod shutdown;

use leases::{Hold, succeeded_at_once};
use shutdown::{Take, attempt_and_status, ran, unique};

#[tokio::test]
async fn c18_with_a_store_that_hangs_a_worker_ends_by_the_drain_deadline() {
    let server = Server::start();
    let client = client(config(&server.url()).drain_timeout(Duration::from_secs(2)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let label = unique("hang");
    let _handle = Take::enqueue(label.clone(), 60_000).on(&client).await.unwrap();
    until("it runs", async || ran(&label) == 1).await;
    let signal = |name: &str| {
        let pid = server.pid().to_string();
        std::process::Command::new("kill").args([name, &pid]).status().unwrap()
    };
    assert!(signal("-STOP").success());
    // A fetch, at the latest the poll, is under way and gets no answer.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    worker.shutdown();
    let asked = Instant::now();
    let ended = tokio::time::timeout(PATIENCE, worker.join()).await;
    let took = asked.elapsed();
    assert!(signal("-CONT").success());
    ended.expect("it ends").unwrap();
    assert!(took < Duration::from_millis(4500), "2 s to drain and 1 s for last words: {took:?}");
}

#[tokio::test]
async fn spec_7_4_a_worker_that_learns_it_lost_a_lease_drops_the_future() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_millis(600)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let label = unique("lost");
    let handle = Take::enqueue(label.clone(), 60_000).on(&client).await.unwrap();
    until("it runs", async || ran(&label) == 1).await;
    // As if another had been granted a newer lease.
    let key = format!("dtq:task:{}", handle.id());
    server.raw().await.run::<i64>(&["HSET", &key, "s", "2:1:2"]).await;
    until("it is dropped", async || ran(&format!("{label} dropped")) == 1).await;
    assert_eq!(attempt_and_status(&client, &handle).await, (1, Status::Running), "nothing written");
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30b_a_group_recreated_while_tasks_run_runs_nothing_twice() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_millis(600)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let label = unique("group");
    let mut handles = Vec::new();
    for _ in 0..6 {
        handles.push(Hold::enqueue(label.clone(), 1500).on(&client).await.unwrap());
    }
    until("they run", async || ran(&label) == 6).await;
    let mut raw = server.raw().await;
    let stream = "dtq:stream:default:p5";
    assert_eq!(raw.run::<i64>(&["XGROUP", "DESTROY", stream, "workers"]).await, 1);
    handles.push(Hold::enqueue(label.clone(), 0).on(&client).await.unwrap());
    succeeded_at_once(&client, &handles).await;
    assert_eq!(ran(&label), 7);
    assert_eq!(raw.run::<i64>(&["XLEN", stream]).await, 0);
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test]
async fn c20_a_cancel_that_was_missed_arrives_when_the_notices_are_connected_again() {
    let server = Server::start();
    // The next renewal, which would bring it as well, is 20 s away.
    let client = client(config(&server.url()).visibility_timeout(Duration::from_secs(60)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let label = unique("missed");
    let handle = Take::enqueue(label.clone(), 60_000).on(&client).await.unwrap();
    until("it runs", async || ran(&label) == 1).await;
    // What a cancel writes, without the notice that it publishes.
    let mut raw = server.raw().await;
    raw.run::<i64>(&["HSET", &format!("dtq:task:{}", handle.id()), "c", "1"]).await;
    raw.run::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    let result = handle.result_within(Duration::from_secs(10)).await;
    assert!(matches!(result, Err(dtq::TaskFailure::Cancelled)), "{result:?}");
    assert_eq!(ran(&format!("{label} dropped")), 1);
    worker.shutdown();
    worker.join().await.unwrap();
}
