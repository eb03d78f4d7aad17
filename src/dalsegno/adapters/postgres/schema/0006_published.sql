-- stage: pre
--
-- What executions show while they run: the newest value of each key, and streams of chunks.

CREATE TABLE published_value (
    execution text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    version   bigint NOT NULL,
    at        float8 NOT NULL,
    token     text COLLATE "C" NOT NULL DEFAULT '', -- of the task that wrote it; empty: its workflow
    fence     bigint NOT NULL DEFAULT 0,
    passing   boolean NOT NULL DEFAULT false, -- it does not outlive its execution
    PRIMARY KEY (execution, key)
) WITH (fillfactor = 50);

-- How far a stream is, and which run wrote last.
CREATE TABLE stream (
    execution text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    length    bigint NOT NULL,
    bytes     bigint NOT NULL,
    closed    boolean NOT NULL,
    token     text COLLATE "C" NOT NULL,
    fence     bigint NOT NULL,
    PRIMARY KEY (execution, name)
) WITH (fillfactor = 50);

-- Chunks that were appended together, as a JSON array.
CREATE TABLE stream_part (
    execution text COLLATE "C" NOT NULL,
    stream    text COLLATE "C" NOT NULL,
    first     bigint NOT NULL, -- offset of its first chunk
    count     integer NOT NULL,
    at        float8 NOT NULL,
    task      text COLLATE "C" NOT NULL,
    attempt   integer NOT NULL,
    restarts  boolean NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, stream, first)
);
