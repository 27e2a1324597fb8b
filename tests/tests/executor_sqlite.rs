//! What task functions can do to whoever runs them, on an SQLite file.

use dtq_tests::SqliteFile as Server;

#[path = "cases/executor.rs"]
mod cases;
