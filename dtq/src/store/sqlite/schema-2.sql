-- Version 2: what has been taken out to be moved to another store, and marks of what came from one.
CREATE TABLE moving (mark TEXT PRIMARY KEY, item TEXT NOT NULL, payload BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE moved (mark TEXT PRIMARY KEY) WITHOUT ROWID;
-- Nothing was found by it.
DROP INDEX task_finished;
