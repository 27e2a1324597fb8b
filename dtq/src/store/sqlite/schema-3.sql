-- Version 3: what a worker's latest fetch granted, so that a repeated one grants nothing new, and an index for
-- the question that is asked after every write. Both had read every running task.
CREATE TABLE receipt (
    incarnation TEXT PRIMARY KEY,
    nonce INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    ids TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX task_cancels ON task (incarnation) WHERE status = 2 AND cancel_requested;
