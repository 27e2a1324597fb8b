//! The worker on a redis-server, and what only that can show.

use std::time::Duration;

use dtq::TaskFailure;
use dtq_tests::{PATIENCE, RedisServer as Server, until};

#[path = "worker/cases.rs"]
mod cases;

use cases::{TellWhenDropped, ran, rig_with, unique};

#[tokio::test]
async fn c20_a_cancel_whose_notice_was_lost_arrives_with_the_next_renewal() {
    let mut rig = rig_with(|config| config.visibility_timeout(Duration::from_millis(600))).await;
    let label = unique("lost-notice");
    let handle = TellWhenDropped::enqueue(label.clone()).on(&rig.client).await.unwrap();
    until("it runs", async || ran(&label) == 1).await;
    // What a cancel writes, without the notice that it publishes.
    let key = format!("dtq:task:{}", handle.id());
    let mut raw = rig.server.raw().await;
    raw.run::<i64>(&["HSET", &key, "c", "1"]).await;
    let ended = handle.result_within(PATIENCE).await;
    assert!(matches!(ended, Err(TaskFailure::Cancelled)), "{ended:?}");
    rig.server.kill();
}
