//! What keeps a worker from starting: everything that is wrong, told together with its place.

use std::sync::Arc;

use dtq::Worker;

#[dtq::task(name = "twice")]
async fn first() {}

#[dtq::task(name = "second", alias = "twice")]
async fn second() {}

struct Pool;

#[dtq::task(max_attempts = 200)]
async fn wants_state(#[state] pool: Arc<Pool>) {
    drop(pool);
}

#[tokio::test]
async fn c47_duplicates_missing_states_and_caps_are_told_together_with_file_and_line() {
    let client = dtq::Client::connect("redis://127.0.0.1:1").unwrap();
    let builder = Worker::builder().client(client).concurrency(0).queues(["Not A Queue"]);
    let error = builder.start().await.unwrap_err().to_string();
    for part in [
        "two tasks are called `twice`",
        "start.rs:7",
        "start.rs:10",
        "wants a state of type",
        "Pool",
        "200 attempts: the deployment allows 10",
        "concurrency is 0",
        "\"Not A Queue\"",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[tokio::test]
async fn spec_7_1_unknown_task_names_are_told_with_those_that_are_known() {
    let client = dtq::Client::connect("redis://127.0.0.1:1").unwrap();
    let error = Worker::builder().client(client).tasks(["frist"]).start().await.unwrap_err();
    assert!(error.to_string().contains("no task is called `frist`"), "{error}");
}
