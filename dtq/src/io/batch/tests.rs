use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;

use super::super::PATIENCE;
use super::*;

/// A batcher on the test's own runtime, whose clock is paused.
fn on_this_runtime<I: Send + Sync + 'static, O: Send + 'static>(
    batching: Batching<I>,
    commit: impl for<'a> Fn(&'a [I]) -> BoxFuture<'a, StoreResult<Vec<O>>> + Send + 'static,
) -> Batcher<I, O> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(run(batching, commit, receiver));
    Batcher(sender)
}

fn batching(patience: Option<Duration>) -> Batching<usize> {
    let limit = BatchLimit { count: 10, bytes: 100 };
    Batching { what: "test", limit, weigh: |n| (1, *n), patience }
}

#[tokio::test(start_paused = true)]
async fn spec_6_what_arrives_during_a_call_goes_together_in_the_next() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let calls = Arc::new(Mutex::new(Vec::new()));
    let batcher = {
        let (gate, calls) = (Arc::clone(&gate), Arc::clone(&calls));
        on_this_runtime(batching(None), move |items| {
            calls.lock().unwrap().push(items.to_vec());
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(items.to_vec())
            }
            .boxed()
        })
    };
    let first = batcher.submit(1);
    while calls.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let more: Vec<_> = [2, 3, 60, 50, 400, 1].into_iter().map(|n| batcher.submit(n)).collect();
    gate.add_permits(10);
    assert_eq!(first.await.unwrap().unwrap(), 1);
    for (answer, wanted) in more.into_iter().zip([2, 3, 60, 50, 400, 1]) {
        assert_eq!(answer.await.unwrap().unwrap(), wanted);
    }
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls, [vec![1], vec![2, 3, 60], vec![50], vec![400], vec![1]], "bounded by bytes");
}

#[tokio::test(start_paused = true)]
async fn spec_4_7_a_batch_is_repeated_while_the_store_is_away_joined_by_what_arrives() {
    let calls = Arc::new(AtomicUsize::new(0));
    let batcher = {
        let calls = Arc::clone(&calls);
        on_this_runtime(batching(None), move |items| {
            let n = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                if n < 50 {
                    Err(StoreError::Unavailable("away".to_owned()))
                } else {
                    Ok(items.to_vec())
                }
            }
            .boxed()
        })
    };
    let first = batcher.submit(1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let second = batcher.submit(2);
    assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (1, 2));
    assert_eq!(calls.load(Ordering::SeqCst), 51, "both in one call");
}

#[tokio::test(start_paused = true)]
async fn spec_6_each_item_has_its_own_patience_also_with_a_store_that_hangs() {
    for hangs in [true, false] {
        let batcher = on_this_runtime(batching(Some(PATIENCE)), move |_| {
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Err::<Vec<usize>, _>(StoreError::Unavailable("away".to_owned()))
            }
            .boxed()
        });
        let started = Instant::now();
        let first = batcher.submit(1);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let second = batcher.submit(2);
        let why = if hangs { "it does not answer" } else { "away" };
        let told = first.await.unwrap().unwrap_err();
        assert!(matches!(&told, StoreError::Unavailable(text) if text == why), "{told}");
        assert_eq!(started.elapsed().as_secs(), 10);
        assert!(matches!(second.await.unwrap(), Err(StoreError::Unavailable(_))));
        // In virtual time its patience begins when the call before it ends.
        assert!((15..=20).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn c24_what_cannot_pass_is_told_to_all_at_once() {
    let batcher = on_this_runtime(batching(Some(PATIENCE)), |_| {
        async { Err::<Vec<usize>, _>(StoreError::Failed("broken".to_owned())) }.boxed()
    });
    let started = Instant::now();
    for answer in [batcher.submit(1), batcher.submit(2)] {
        assert!(matches!(answer.await.unwrap(), Err(StoreError::Failed(_))));
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
}
