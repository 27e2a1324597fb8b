//! Work that becomes runnable starts at once, on an SQLite file.

use dtq_tests::SqliteFile as Server;

#[path = "cases/wakeups.rs"]
mod cases;
