//! Workers that shut down or stand still, on an SQLite file.

use dtq_tests::SqliteFile as Server;

#[path = "cases/leases.rs"]
mod leases;
#[path = "cases/shutdown.rs"]
mod shutdown;
