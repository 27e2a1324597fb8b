-- Version 1. Times are milliseconds since the Unix epoch; statuses are the codes of status.rs.

CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

-- The record: the authoritative row of a task. Where it waits follows from its status alone.
CREATE TABLE task (
    id TEXT PRIMARY KEY,
    version INTEGER NOT NULL DEFAULT 1,
    status INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    timeout INTEGER NOT NULL,
    payload BLOB NOT NULL,
    -- Order of arrival in its queue; set whenever it becomes queued.
    entry INTEGER,
    due INTEGER,
    claimed_at INTEGER,
    expires INTEGER,
    ttl INTEGER,
    idempotency_key TEXT,
    fingerprint TEXT,
    retention INTEGER,
    result_retention INTEGER,
    result_max_bytes INTEGER,
    metadata TEXT,
    -- The fence: grows with every grant.
    lease INTEGER NOT NULL DEFAULT 0,
    deadline INTEGER,
    worker_id TEXT,
    incarnation TEXT,
    nonce INTEGER,
    started INTEGER,
    finished INTEGER,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    error_delay INTEGER,
    history TEXT NOT NULL DEFAULT '',
    unknown_since INTEGER,
    -- 'null', 'json' or 'large'.
    result_kind TEXT,
    result BLOB,
    result_bytes INTEGER,
    result_leaves INTEGER,
    dead_letter INTEGER,
    discarded INTEGER NOT NULL DEFAULT 0,
    previous_attempts TEXT,
    -- When an ended record leaves; a mark of one that left at once stays for repeated calls.
    leaves INTEGER,
    left_at_once INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX task_ready ON task (queue, priority DESC, entry) WHERE status = 1;
CREATE INDEX task_due ON task (due) WHERE status IN (0, 3) AND claimed_at IS NULL;
CREATE INDEX task_claimed ON task (claimed_at) WHERE claimed_at IS NOT NULL;
CREATE INDEX task_leased ON task (deadline) WHERE status = 2;
CREATE INDEX task_finished ON task (finished) WHERE status > 3;
CREATE INDEX task_leaves ON task (leaves) WHERE leaves IS NOT NULL;

CREATE TABLE queue (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    depth INTEGER NOT NULL DEFAULT 0,
    scheduled INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE idempotency (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id TEXT NOT NULL,
    state TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    leaves INTEGER,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_leaves ON idempotency (leaves) WHERE leaves IS NOT NULL;

CREATE TABLE dead_letter (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    payload BLOB NOT NULL,
    error TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    worker_id TEXT,
    at INTEGER NOT NULL
);

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    count INTEGER NOT NULL
);

CREATE TABLE worker (
    id TEXT PRIMARY KEY,
    incarnation TEXT NOT NULL,
    queues TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    in_flight INTEGER NOT NULL,
    interval INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL,
    beat INTEGER NOT NULL
) WITHOUT ROWID;

-- The scheduler's lock: one row.
CREATE TABLE leader (one INTEGER PRIMARY KEY CHECK (one = 1), worker_id TEXT NOT NULL, until INTEGER NOT NULL);

-- Lifecycle events, kept for a minute and only while somebody listens.
CREATE TABLE event (seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, text TEXT NOT NULL);
CREATE TABLE listener (id TEXT PRIMARY KEY, seen INTEGER NOT NULL) WITHOUT ROWID;
