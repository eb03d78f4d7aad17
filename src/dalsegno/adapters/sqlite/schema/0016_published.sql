-- What executions show while they run: the newest value of each key, and streams of chunks.

CREATE TABLE published_value (
    execution TEXT NOT NULL,
    key       TEXT NOT NULL,
    data      BLOB NOT NULL,
    version   INTEGER NOT NULL,
    at        REAL NOT NULL,
    token     TEXT NOT NULL DEFAULT '', -- of the task that wrote it; empty: its workflow
    fence     INTEGER NOT NULL DEFAULT 0,
    passing   INTEGER NOT NULL DEFAULT 0, -- it does not outlive its execution
    PRIMARY KEY (execution, key)
);

-- How far a stream is, and which run wrote last.
CREATE TABLE stream (
    execution TEXT NOT NULL,
    name      TEXT NOT NULL,
    length    INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    closed    INTEGER NOT NULL,
    token     TEXT NOT NULL,
    fence     INTEGER NOT NULL,
    PRIMARY KEY (execution, name)
) WITHOUT ROWID;

-- Chunks that were appended together, as a JSON array.
CREATE TABLE stream_part (
    execution TEXT NOT NULL,
    stream    TEXT NOT NULL,
    first     INTEGER NOT NULL, -- offset of its first chunk
    count     INTEGER NOT NULL,
    at        REAL NOT NULL,
    task      TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    restarts  INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, stream, first)
);
