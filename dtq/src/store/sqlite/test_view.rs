//! What a test of its own clock looks at: what could happen now, and when the next thing does.

use std::sync::Arc;

use super::SqliteStore;
use super::db::{Db, TestClock};
use crate::id::TaskId;
use crate::store::{Millis, Settings, Store as _, StoreResult};

/// What stands in a store, by its clock.
#[derive(Debug)]
pub(crate) struct TestView {
    pub(crate) now: Millis,
    /// Queues with tasks that could be fetched.
    pub(crate) ready: Vec<String>,
    /// Something is due, or a lease has lapsed.
    pub(crate) due: bool,
    /// When the next thing is due, or the next lease lapses.
    pub(crate) next: Option<Millis>,
}

impl SqliteStore {
    /// In memory; to be used on the runtime of the clock alone.
    pub(crate) fn of_test(clock: TestClock, settings: &Settings) -> Self {
        Self { db: Arc::new(Db::of_test(clock)), settings: Arc::new(settings.clone()) }
    }

    pub(crate) async fn test_view(&self) -> StoreResult<TestView> {
        self.read(|tx| {
            // What a leader claimed and left is the next leader's, whose lock is free by then.
            let moments: Vec<Millis> = tx.all(
                "SELECT MIN(due) FROM task WHERE status IN (0, 3) AND claimed_at IS NULL
                 UNION ALL SELECT MIN(deadline) FROM task WHERE status = 2
                 UNION ALL SELECT COALESCE((SELECT until FROM leader), 0) FROM task WHERE claimed_at IS NOT NULL",
                [],
                |row| row.get::<_, Option<Millis>>(0),
            )?.into_iter().flatten().collect();
            let ready = tx.all(
                "SELECT DISTINCT queue FROM task WHERE status = 1
                 AND queue NOT IN (SELECT name FROM queue WHERE paused)",
                [],
                |row| row.get(0),
            )?;
            Ok(TestView {
                now: tx.now,
                ready,
                due: moments.iter().any(|moment| *moment <= tx.now),
                next: moments.iter().copied().filter(|moment| *moment > tx.now).min(),
            })
        })
        .await
    }

    /// A running task's lease lapses now, and the task is redelivered before its worker knows.
    pub(crate) async fn take_lease_away(&self, id: TaskId) -> StoreResult<()> {
        self.write(move |tx| {
            tx.run("UPDATE task SET deadline = 0 WHERE id = ?1 AND status = 2", [id.to_string()])
        })
        .await?;
        self.reap(100).await.map(|_| ())
    }
}
