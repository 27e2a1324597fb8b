//! The store goes away, forgets, or its replies are lost (CASES C24 to C30).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dtq::{Client, Status, Worker};
use dtq_tests::{PATIENCE, Proxy, RedisServer, client, config, until};

static RAN: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

fn note(label: &str) {
    let mut ran = RAN.lock().unwrap_or_else(PoisonError::into_inner);
    *ran.get_or_insert_default().entry(label.to_owned()).or_default() += 1;
}

fn ran(label: &str) -> usize {
    let mut ran = RAN.lock().unwrap_or_else(PoisonError::into_inner);
    ran.get_or_insert_default().get(label).copied().unwrap_or_default()
}

#[dtq::task]
async fn echo(label: String, ms: u64) -> String {
    note(&label);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    format!("echo of {label}")
}

fn unique(label: &str) -> String {
    format!("{label}-{:x}", fastrand::u64(..))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30a_a_lost_reply_to_an_enqueue_doubles_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port()).await;
    let client = client(config(&proxy.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    for round in 0..5 {
        let label = unique("enqueue");
        proxy.lose_reply_to(&label);
        let enqueue =
            Echo::enqueue(label.clone(), 0).max_attempts(1).idempotency_key(label.clone());
        let handle = enqueue.on(&client).await.unwrap();
        assert!(!handle.is_duplicate());
        assert_eq!(handle.result_within(PATIENCE).await.unwrap(), format!("echo of {label}"));
        assert_eq!((ran(&label), proxy.cuts()), (1, round + 1));
    }
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30a_a_lost_reply_to_a_finish_doubles_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port()).await;
    let client = client(config(&proxy.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    for _ in 0..5 {
        let label = unique("finish");
        let handle = Echo::enqueue(label.clone(), 100).max_attempts(1).on(&client).await.unwrap();
        until("it runs", async || ran(&label) == 1).await;
        let before = proxy.cuts();
        proxy.lose_reply_to(&format!("echo of {label}"));
        until("the reply is lost", async || proxy.cuts() > before).await;
        assert_eq!(handle.result_within(PATIENCE).await.unwrap(), format!("echo of {label}"));
        assert_eq!(ran(&label), 1);
        let info = client.inspect().task(handle.id()).await.unwrap().unwrap();
        assert_eq!((info.status, info.attempt), (Status::Succeeded, 1));
    }
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c30a_spec_4_7_a_lost_reply_to_a_fetch_burns_no_attempt() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port()).await;
    // Heartbeats name the queue too: rarely, so that it is a fetch whose reply is lost.
    let patient = |url: &str| client(config(url).visibility_timeout(Duration::from_secs(60)));
    let (through, direct) = (patient(&proxy.url()), patient(&server.url()));
    let queue = format!("q{:x}", fastrand::u32(..));
    let builder = Worker::builder().client(through.clone()).queues([queue.clone()]);
    let worker = builder.start().await.unwrap();
    for _ in 0..6 {
        let label = unique("fetch");
        let before = proxy.cuts();
        proxy.lose_reply_to(&format!("\r\n{queue}\r\n"));
        let enqueue = Echo::enqueue(label.clone(), 0).max_attempts(1).queue(queue.clone());
        let handle = enqueue.on(&direct).await.unwrap();
        assert_eq!(handle.result_within(PATIENCE).await.unwrap(), format!("echo of {label}"));
        assert_eq!(ran(&label), 1);
        assert_eq!(direct.inspect().task(handle.id()).await.unwrap().unwrap().attempt, 1);
        assert!(proxy.cuts() > before, "a reply was lost");
    }
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_a_killed_and_restarted_redis_is_waited_for() {
    let mut server =
        RedisServer::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let client = client(config(&server.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let label = unique("restart");
    let mut handles = Vec::new();
    for n in 0..40 {
        handles.push(Echo::enqueue(label.clone(), n * 10).on(&client).await.unwrap());
    }
    let delayed = Echo::enqueue(label.clone(), 0)
        .delay(Duration::from_millis(700))
        .on(&client)
        .await
        .unwrap();
    handles.push(delayed);
    until("some run", async || ran(&label) > 5).await;
    server.kill();
    tokio::time::sleep(Duration::from_millis(400)).await;
    server.restart();
    for handle in &handles {
        handle.result_within(PATIENCE).await.unwrap();
        assert_eq!(handle.status().await.unwrap(), Status::Succeeded);
    }
    let new = Echo::enqueue(unique("after"), 0).on(&client).await.unwrap();
    new.result_within(PATIENCE).await.unwrap();
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_c26_killed_connections_and_forgotten_scripts_cost_nothing() {
    let server = RedisServer::start();
    let client = client(config(&server.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let mut raw = server.raw().await;
    let label = unique("kills");
    let mut handles = Vec::new();
    for _ in 0..20 {
        for _ in 0..10 {
            handles
                .push(Echo::enqueue(label.clone(), 5).max_attempts(1).on(&client).await.unwrap());
        }
        raw.run::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        raw.run::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        raw.run::<()>(&["SCRIPT", "FLUSH"]).await;
    }
    for handle in &handles {
        handle.result_within(PATIENCE).await.unwrap();
    }
    assert_eq!(ran(&label), handles.len(), "each once");
    worker.shutdown();
    worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c25_after_flushall_registration_and_work_come_back() {
    let server = RedisServer::start();
    let client = client(config(&server.url()).heartbeat_interval(Duration::from_millis(100)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let first = Echo::enqueue(unique("before"), 0).on(&client).await.unwrap();
    first.result_within(PATIENCE).await.unwrap();
    server.raw().await.run::<()>(&["FLUSHALL"]).await;
    until("it registers again", async || {
        client.inspect().workers().await.unwrap().iter().any(|w| w.id == worker.id())
    })
    .await;
    let second = Echo::enqueue(unique("after"), 0)
        .delay(Duration::from_millis(50))
        .on(&client)
        .await
        .unwrap();
    second.result_within(PATIENCE).await.unwrap();
    worker.shutdown();
    worker.join().await.unwrap();
}

#[test]
fn c30c_one_client_serves_one_runtime_after_another() {
    let server = RedisServer::start();
    let client = client(config(&server.url()));
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let worker = Worker::builder().client(client.clone()).start().await.unwrap();
            let label = unique("runtime");
            let handle = Echo::enqueue(label.clone(), 0).on(&client).await.unwrap();
            handle.result_within(PATIENCE).await.unwrap();
            // Left running: it ends with its runtime, and gives back what it holds.
            drop(worker);
            Echo::enqueue(label, 60_000).on(&client).await.unwrap();
        });
    }
    let handle =
        Echo::enqueue(unique("no runtime"), 0).priority(9).on(&client).send_blocking().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let worker = Worker::builder().client(client.clone()).start().await.unwrap();
        handle.result_within(PATIENCE).await.unwrap();
        // What the ended runtimes held has no attempt burnt, or was redelivered where the end was too abrupt.
        worker.shutdown();
    });
}

#[tokio::test]
async fn c28_passwords_users_databases_and_sockets_connect() {
    let socket_dir = std::env::temp_dir().join(format!(
        "dtq-sock-{}-{:x}",
        std::process::id(),
        fastrand::u32(..)
    ));
    std::fs::create_dir_all(&socket_dir).unwrap();
    let socket = socket_dir.join("r.sock");
    let password = "p@s/s#w%rd+=?";
    let server = RedisServer::start_with(&[
        "--save",
        "",
        "--requirepass",
        password,
        "--unixsocket",
        socket.to_str().unwrap(),
    ]);
    let admin = redis::Client::open(format!(
        "redis://:{}@127.0.0.1:{}",
        "p%40s%2Fs%23w%25rd%2B%3D%3F",
        server.port()
    ))
    .unwrap();
    let mut raw = admin.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("ACL")
        .arg(&[
            "SETUSER",
            "ada",
            "on",
            "allkeys",
            "allchannels",
            "allcommands",
            &format!(">{password}"),
        ])
        .query_async::<()>(&mut raw)
        .await
        .unwrap();
    for url in [
        format!("redis://:{password}@127.0.0.1:{}/1", server.port()),
        format!("redis://ada:{password}@127.0.0.1:{}/2", server.port()),
        format!("redis+unix://{}?db=3&pass=p%40s%2Fs%23w%25rd%2B%3D%3F", socket.display()),
    ] {
        let client = Client::connect(&url).unwrap();
        assert!(!format!("{client:?}").contains("p@s"));
        let worker = Worker::builder().client(client.clone()).start().await.unwrap();
        let handle = Echo::enqueue(unique("password"), 0).on(&client).await.unwrap();
        handle.result_within(PATIENCE).await.unwrap();
        worker.shutdown();
        worker.join().await.unwrap();
    }
    let wrong = Client::connect(format!("redis://:wr0ng@127.0.0.1:{}", server.port())).unwrap();
    let error = Echo::enqueue("x", 0).on(&wrong).await.unwrap_err();
    assert!(!error.to_string().contains("wr0ng"), "{error}");
    std::fs::remove_dir_all(&socket_dir).unwrap();
}
