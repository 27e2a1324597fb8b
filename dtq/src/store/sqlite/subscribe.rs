//! What the store tells without being asked: looked up whenever something was written, by this
//! process or another.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::params;
use tokio::sync::mpsc;

use super::db::Db;
use super::records::Tx;
use crate::store::{Holder, Millis, Notice, Settings, StoreResult};

/// A listener shows that it is there this often.
const SHOW_UP: Duration = Duration::from_secs(5);

/// What a look at the rows tells a worker or a waiter.
struct Seen {
    cancelled: Vec<String>,
    next_due: Option<Millis>,
}

/// Tells notices until their receiver is dropped.
pub(super) async fn notices(
    db: Arc<Db>,
    settings: Arc<Settings>,
    holder: Option<Holder>,
    out: mpsc::UnboundedSender<Notice>,
) {
    let mut changed = db.changed.subscribe();
    let mut told = HashSet::new();
    let mut known_due = None;
    while !out.is_closed() {
        changed.mark_unchanged();
        match &holder {
            Some(holder) => {
                if let Ok(seen) = look(&db, &settings, holder).await {
                    for id in &seen.cancelled {
                        if told.insert(id.clone())
                            && let Ok(id) = id.parse()
                        {
                            let _ = out.send(Notice::Cancel(id));
                        }
                    }
                    told.retain(|id| seen.cancelled.contains(id));
                    let earlier = match (seen.next_due, known_due) {
                        (Some(next), Some(known)) => next < known,
                        (Some(_), None) => true,
                        (None, _) => false,
                    };
                    if earlier {
                        let _ = out.send(Notice::DueEarlier);
                    }
                    known_due = seen.next_due;
                }
            }
            // Waiters read again whatever was written: a file on one machine is quick to ask.
            None => {
                let _ = out.send(Notice::Reconnected);
            }
        }
        tokio::select! {
            news = changed.changed() => if news.is_err() { return },
            () = out.closed() => return,
        }
    }
}

async fn look(db: &Db, settings: &Arc<Settings>, holder: &Holder) -> StoreResult<Seen> {
    let (settings, incarnation) = (Arc::clone(settings), holder.incarnation.clone());
    db.read(move |tx, now| {
        let tx = Tx::new(tx, now, &settings);
        Ok(Seen {
            cancelled: tx.all(
                "SELECT id FROM task WHERE status = 2 AND cancel_requested AND incarnation = ?1",
                [&incarnation],
                |row| row.get(0),
            )?,
            next_due: tx
                .one(
                    "SELECT MIN(due) FROM task WHERE status IN (0, 3) AND claimed_at IS NULL",
                    [],
                    |row| row.get::<_, Option<Millis>>(0),
                )?
                .flatten(),
        })
    })
    .await
}

/// Tells lifecycle events until their receiver is dropped.
pub(super) async fn events(db: Arc<Db>, out: mpsc::UnboundedSender<String>) {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let mut changed = db.changed.subscribe();
    let mut shown = None;
    let mut after: Option<i64> = None;
    while !out.is_closed() {
        if shown.is_none_or(|at: tokio::time::Instant| at.elapsed() >= SHOW_UP) {
            let own = id.clone();
            let showing = db.write(move |tx, now| {
                tx.execute(
                    "INSERT OR REPLACE INTO listener (id, seen) VALUES (?1, ?2)",
                    params![own, now],
                )
                .map_err(super::db::to_store_error)?;
                tx.query_row("SELECT COALESCE(MAX(seq), 0) FROM event", [], |row| {
                    row.get::<_, i64>(0)
                })
                .map_err(super::db::to_store_error)
            });
            if let Ok(last) = showing.await {
                after.get_or_insert(last);
                shown = Some(tokio::time::Instant::now());
            }
        }
        changed.mark_unchanged();
        if let Some(from) = after
            && let Ok(rows) = read(&db, from).await
        {
            for (seq, text) in rows {
                after = Some(seq);
                if out.send(text).is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            news = changed.changed() => if news.is_err() { return },
            () = tokio::time::sleep(SHOW_UP) => {}
            () = out.closed() => break,
        }
    }
    let _ = db
        .write(move |tx, _| {
            tx.execute("DELETE FROM listener WHERE id = ?1", [id])
                .map_err(super::db::to_store_error)
        })
        .await;
}

async fn read(db: &Db, after: i64) -> StoreResult<Vec<(i64, String)>> {
    db.read(move |tx, _| {
        let mut statement = tx
            .prepare_cached("SELECT seq, text FROM event WHERE seq > ?1 ORDER BY seq LIMIT 1000")
            .map_err(super::db::to_store_error)?;
        let rows = statement
            .query_map([after], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(super::db::to_store_error)?;
        rows.collect::<rusqlite::Result<Vec<_>>>().map_err(super::db::to_store_error)
    })
    .await
}
