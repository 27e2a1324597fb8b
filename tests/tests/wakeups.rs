//! Work that becomes runnable starts at once, whoever leads, and idle workers cost little (SPEC 7.2, 8).

use std::time::Duration;

use dtq::{Client, Status, Worker};
use dtq_tests::{Proxy, RedisServer as Server, client, config, until};

#[path = "cases/wakeups.rs"]
mod cases;

use cases::{Begin, unique};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spec_8_4_a_lost_reply_to_a_claim_or_requeue_delays_little() {
    let server = Server::start();
    let proxy = Proxy::before(server.port()).await;
    let patient = |url: &str| client(config(url).visibility_timeout(Duration::from_secs(30)));
    let (through, direct) = (patient(&proxy.url()), patient(&server.url()));
    let worker = Worker::builder().client(through).worker_id("worker-alone").start().await.unwrap();
    // What only a claim names is the leader, what only a requeue names is the task.
    for round in 0..4 {
        let (label, before) = (unique("claim"), proxy.cuts());
        let delay = Duration::from_millis(400);
        let handle = Begin::enqueue(label.clone()).delay(delay).on(&direct).await.unwrap();
        if round % 2 == 0 {
            tokio::time::sleep(delay - Duration::from_millis(60)).await;
            proxy.lose_reply_to("\r\nworker-alone\r\n$5\r\n10000\r\n");
        } else {
            proxy.lose_reply_to(&handle.id().to_string());
        }
        handle.result_within(Duration::from_secs(8)).await.unwrap();
        let info = direct.inspect().task(handle.id()).await.unwrap().unwrap();
        assert_eq!((info.status, info.attempt), (Status::Succeeded, 1));
        assert!(proxy.cuts() > before, "round {round}: a reply was lost");
    }
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test]
async fn spec_8_3_a_new_leader_takes_up_what_the_last_had_claimed() {
    let server = Server::start();
    let client = client(config(&server.url()));
    let handle =
        Begin::enqueue(unique("left")).delay(Duration::from_millis(1)).on(&client).await.unwrap();
    // As a leader leaves it that is killed between claim and requeue.
    let mut raw = server.raw().await;
    let id = handle.id().to_string();
    assert_eq!(raw.run::<i64>(&["ZREM", "dtq:retry:schedule", &id]).await, 1);
    let (seconds, micros): (u64, u64) = raw.run(&["TIME"]).await;
    let now = (seconds * 1000 + micros / 1000).to_string();
    raw.run::<i64>(&["ZADD", "dtq:retry:claimed", &now, &id]).await;
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    handle.result_within(Duration::from_secs(10)).await.unwrap();
    worker.shutdown();
    worker.join().await.unwrap();
}

async fn assert_idle_costs_at_most_3_commands_a_second(server: &Server) {
    let mut raw = server.raw().await;
    let leads = async || raw.clone().run::<i64>(&["EXISTS", "dtq:lock:scheduler"]).await == 1;
    until("it leads", leads).await;
    // What was announced before it started is looked into first.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let connected = connections(&mut raw).await;
    let (before, began) = (raw.commands().await, std::time::Instant::now());
    // Long enough for what comes every few seconds to count as often as it comes.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let commands = raw.commands().await - before;
    let watched = began.elapsed();
    assert_eq!(connections(&mut raw).await, connected, "C27: nobody connects anew");
    assert!(commands as f64 <= 3.0 * watched.as_secs_f64(), "{commands} commands in {watched:?}");
}

/// Connections made to the server so far.
async fn connections(raw: &mut dtq_tests::Raw) -> String {
    let stats: String = raw.run(&["INFO", "stats"]).await;
    let line = stats.lines().find(|line| line.starts_with("total_connections_received"));
    line.expect("it is told").to_owned()
}

async fn known_queue(client: &Client, queue: &str) {
    let handle = Begin::enqueue(unique(queue)).queue(queue).on(client).await.unwrap();
    handle.cancel().await.unwrap();
}

#[tokio::test]
async fn spec_7_2_an_idle_worker_costs_at_most_3_commands_a_second() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_secs(30)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    assert_idle_costs_at_most_3_commands_a_second(&server).await;
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test]
async fn spec_7_2_an_idle_worker_of_every_queue_costs_at_most_3_commands_a_second() {
    let server = Server::start();
    let client = client(config(&server.url()).visibility_timeout(Duration::from_secs(30)));
    for queue in ["a", "b", "c"] {
        known_queue(&client, queue).await;
    }
    let worker = Worker::builder().client(client.clone()).queues(["*"]).start().await.unwrap();
    assert_idle_costs_at_most_3_commands_a_second(&server).await;
    worker.shutdown();
    worker.join().await.unwrap();
}
