//! The worker on an SQLite file: the cases that hold on a redis-server hold here.

use dtq_tests::SqliteFile as Server;

#[path = "worker/cases.rs"]
#[allow(dead_code, unused_imports, reason = "the other store's file uses more of it")]
mod cases;
