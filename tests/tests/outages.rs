//! A redis-server that is there but does not serve: a worker waits, loses nothing, and resumes by
//! itself (CASES C24).

use std::time::Duration;

use dtq::{Client, Status, Worker, WorkerHandle};
use dtq_tests::{PATIENCE, Raw, RedisServer, client, config};

#[dtq::task(timeout_ms = 60000, max_attempts = 1)]
async fn last(ms: u64) -> u64 {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    ms
}

struct Rig {
    server: RedisServer,
    raw: Raw,
    client: Client,
    worker: WorkerHandle,
}

async fn rig(arguments: &[&str]) -> Rig {
    let server = RedisServer::start_with(&[&["--save", ""], arguments].concat());
    // An outage that is shorter than the visibility timeout costs no lease.
    let client = client(config(&server.url()).visibility_timeout(Duration::from_secs(30)));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    Rig { raw: server.raw().await, server, client, worker }
}

/// Tasks before the outage, some of which end within it, and a delayed one that is due within it; all
/// of them and a new one must end in their one attempt once it is over.
async fn survives(
    mut rig: Rig,
    begin: impl AsyncFnOnce(&mut Rig),
    end: impl AsyncFnOnce(&mut Rig),
) {
    let mut handles = Vec::new();
    for ms in [300, 600, 3000] {
        handles.push(Last::enqueue(ms).on(&rig.client).await.unwrap());
    }
    let delay = Duration::from_millis(700);
    handles.push(Last::enqueue(0).delay(delay).on(&rig.client).await.unwrap());
    let running = async || handles[2].status().await.unwrap() == Status::Running;
    dtq_tests::until("they run", running).await;
    begin(&mut rig).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    end(&mut rig).await;
    handles.push(Last::enqueue(1).on(&rig.client).await.unwrap());
    for handle in &handles {
        handle.result_within(PATIENCE).await.unwrap();
    }
    rig.worker.shutdown();
    rig.worker.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_a_server_that_became_a_replica_and_is_promoted_again() {
    survives(
        rig(&[]).await,
        // Of a server that is not there: every write is READONLY.
        async |rig| rig.raw.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await,
        async |rig| rig.raw.run::<()>(&["REPLICAOF", "NO", "ONE"]).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_a_server_whose_master_is_down() {
    survives(
        rig(&["--replica-serve-stale-data", "no"]).await,
        async |rig| rig.raw.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await,
        async |rig| rig.raw.run::<()>(&["REPLICAOF", "NO", "ONE"]).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_a_server_that_wants_replicas_for_its_writes() {
    survives(
        rig(&[]).await,
        async |rig| rig.raw.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await,
        async |rig| rig.raw.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_a_server_out_of_memory() {
    survives(
        rig(&[]).await,
        async |rig| rig.raw.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await,
        async |rig| rig.raw.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_a_server_busy_with_somebody_elses_script() {
    survives(
        rig(&["--lua-time-limit", "50"]).await,
        async |rig| {
            let client = redis::Client::open(rig.server.url()).unwrap();
            let mut other = client.get_multiplexed_async_connection().await.unwrap();
            tokio::spawn(async move {
                let mut spin = redis::cmd("EVAL");
                let _ = spin.arg("while true do end").arg(0).query_async::<()>(&mut other).await;
            });
        },
        async |rig| rig.raw.run::<()>(&["SCRIPT", "KILL"]).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c24_a_server_that_stands_still_for_longer_than_a_reply_is_waited_for() {
    let signal = async |rig: &mut Rig, name: &str| {
        let pid = rig.server.pid().to_string();
        let sent = std::process::Command::new("kill").args([name, &pid]).status();
        assert!(sent.unwrap().success());
    };
    survives(
        rig(&[]).await,
        async |rig| {
            signal(rig, "-STOP").await;
            tokio::time::sleep(Duration::from_secs(6)).await;
        },
        async |rig| signal(rig, "-CONT").await,
    )
    .await;
}
