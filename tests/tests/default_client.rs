//! One client of the process serves what names none: calls of tasks, and workers.

use dtq::Worker;
use dtq_tests::{PATIENCE, RedisServer, client, config};

#[dtq::task]
async fn greet(name: String) -> String {
    format!("hello {name}")
}

#[tokio::test]
async fn a_worker_that_names_no_store_serves_the_default_client() {
    let server = RedisServer::start();
    dtq::set_default_client(client(config(&server.url())));
    for worker in [Worker::from_env().unwrap(), Worker::builder().build()] {
        let worker = worker.start().await.unwrap();
        let handle = Greet::enqueue("ada").await.unwrap();
        assert_eq!(handle.result_within(PATIENCE).await.unwrap(), "hello ada");
        worker.shutdown();
        worker.join().await.unwrap();
    }
}
