//! What a worker logs: one line for each outcome, never a payload, and little during an outage (C24).

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dtq::{TaskError, Worker};
use dtq_tests::{PATIENCE, RedisServer, client, config, until};
use tracing_subscriber::filter::LevelFilter;

/// Everything that was logged in this process, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Log::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_max_level(LevelFilter::TRACE)
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .init();
            log
        });
        log.clone()
    }

    /// The lines that contain every one of `parts`.
    fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(has).map(str::to_owned).collect()
    }
}

#[dtq::task(max_attempts = 2, backoff(base = "1ms", max = "1ms", jitter = 0.0))]
async fn confide(secret: String, how: String) -> Result<String, TaskError> {
    match how.as_str() {
        "succeeds" => Ok(secret),
        "fails" => Err(dtq::retryable!("this time")),
        _ => panic!("at once"),
    }
}

#[tokio::test]
async fn spec_3_6_each_outcome_is_one_line_with_its_task_and_no_line_has_a_payload() {
    let log = Log::start();
    let server = RedisServer::start();
    let client = client(config(&server.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    for (how, expected) in [
        ("succeeds", [(1, "task succeeded")].as_slice()),
        ("fails", &[(1, "task failed and is retried"), (2, "task failed for good")]),
        ("panics", &[(1, "task failed for good")]),
    ] {
        let handle = Confide::enqueue("hush-hush", how).on(&client).await.unwrap();
        let _ = handle.result_within(PATIENCE).await;
        let id = handle.id().to_string();
        let outcomes = log.lines(&["task_type=\"confide\"", &id, "task "]);
        for (attempt, says) in expected {
            let attempt = format!("attempt={attempt}");
            let lines = log.lines(&[&id, &attempt, "queue=\"default\"", says]);
            assert_eq!(lines.len(), 1, "{how} {attempt}: {outcomes:#?}");
        }
    }
    worker.shutdown();
    worker.join().await.unwrap();
    assert_eq!(log.lines(&["hush-hush"]), [""; 0]);
}

#[tokio::test]
async fn c24_an_outage_costs_few_lines_and_ends_by_itself() {
    let log = Log::start();
    let mut server = RedisServer::start();
    let client = client(config(&server.url()));
    let worker = Worker::builder().client(client.clone()).start().await.unwrap();
    let first = Confide::enqueue("x", "succeeds").on(&client).await.unwrap();
    first.result_within(PATIENCE).await.unwrap();
    server.kill();
    tokio::time::sleep(Duration::from_secs(8)).await;
    let away = log.lines(&["WARN", "dtq"]).len() + log.lines(&["ERROR", "dtq"]).len();
    server.restart();
    until("it registers again", async || {
        let workers = client.inspect().workers().await.unwrap_or_default();
        workers.iter().any(|known| known.id == worker.id())
    })
    .await;
    let second = Confide::enqueue("x", "succeeds").on(&client).await.unwrap();
    second.result_within(PATIENCE).await.unwrap();
    // Six loops, each of which doubles the time to its next line.
    assert!((1..=60).contains(&away), "{away} lines: {:#?}", log.lines(&["WARN", "dtq"]));
    worker.shutdown();
    worker.join().await.unwrap();
}
