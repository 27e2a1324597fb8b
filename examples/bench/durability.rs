//! What each guarantee, event and byte costs: the same figures under other settings.

use super::figures::Figures;
use super::server::Aof;
use super::{Events, Settings, StoreKind, measure};

const COLUMNS: [&str; 5] = [
    "enqueue one by one /s",
    "enqueue in bulk /s",
    "drain /s",
    "idle latency p99 ms",
    "bytes a waiting task",
];

pub(crate) async fn show(settings: &Settings) -> anyhow::Result<()> {
    let base = Settings { store: StoreKind::Redis, ..settings.clone() };
    let file = Settings { store: StoreKind::Sqlite, ..settings.clone() };
    // Payloads of that size are the disk's and the network's matter: fewer of them tell as much.
    let padded =
        |of: &Settings, padding, share| Settings { padding, tasks: of.tasks / share, ..of.clone() };
    let full = Settings { synchronous: "full".to_owned(), ..file.clone() };
    let rows = [
        ("Redis", base.clone()),
        ("Redis, AOF everysec", Settings { aof: Aof::Everysec, ..base.clone() }),
        ("Redis, AOF always", Settings { aof: Aof::Always, ..base.clone() }),
        ("Redis, events off", Settings { events: Events::Off, ..base.clone() }),
        ("Redis, events subscribed", Settings { events: Events::Subscribed, ..base.clone() }),
        ("Redis, payload 100 B", padded(&base, 69, 1)),
        ("Redis, payload 10 KB", padded(&base, 10_000, 10)),
        ("Redis, payload 200 KB", padded(&base, 200_000, 100)),
        ("SQLite NORMAL", file.clone()),
        ("SQLite FULL", full),
        (
            "SQLite NORMAL, events subscribed",
            Settings { events: Events::Subscribed, ..file.clone() },
        ),
        ("SQLite NORMAL, payload 10 KB", padded(&file, 10_000, 10)),
    ];
    println!("| | {} |\n| --- |{}", COLUMNS.join(" | "), " ---: |".repeat(COLUMNS.len()));
    for (name, settings) in rows {
        let mut runs = Vec::new();
        for _ in 0..settings.runs {
            runs.push(measure(&settings).await?);
        }
        println!("| {name} {}", Figures::medians(&runs).row(&COLUMNS));
    }
    Ok(())
}
