-- Records that people set up (keys, credentials, webhooks, limits), and logs of their changes.

CREATE TABLE record (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

CREATE TABLE log_entry (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice, though old ones go
    log TEXT NOT NULL,
    at REAL NOT NULL,
    data BLOB NOT NULL
);

CREATE INDEX log_entry_by_log ON log_entry (log, number);
