//! A program without tasks (C47): a worker refuses to start and says what to do.

use dtq::Worker;

#[tokio::test]
async fn c47_a_worker_without_tasks_says_so() {
    let client = dtq::Client::connect("redis://127.0.0.1:1").unwrap();
    let error = Worker::builder().client(client).start().await.unwrap_err().to_string();
    assert!(
        error.contains("the program has no tasks") && error.contains("#[dtq::task]"),
        "{error}"
    );
}
