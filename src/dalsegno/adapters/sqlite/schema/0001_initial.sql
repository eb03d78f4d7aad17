-- The first schema of a Dal Segno store.
--
-- An execution is two rows. `execution` is its record: written when it starts, pauses, resumes and ends. `flight`
-- is its lock and its counters: small, written by every commit, deleted once the execution is swept, so that
-- searches for unfinished work read few rows.
--
-- Inside the file an execution has a number, which is short and grows: the rows of running executions are close
-- together at the end of each tree, and most of a commit is appended. (Measured against trees keyed by the ids
-- themselves: a third of the time and half of the log.) The views at the end show ids again, for people and
-- readers.
--
-- Payload columns come last, so that reading the others never follows their overflow pages.

CREATE TABLE execution (
    number          INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    workflow        TEXT NOT NULL,
    version         INTEGER NOT NULL,
    definition      TEXT NOT NULL,
    state           TEXT NOT NULL,
    created_at      REAL NOT NULL,
    priority        INTEGER NOT NULL,
    parent          TEXT,
    relation        TEXT,
    idempotency_key TEXT,
    paused_at       REAL,
    ended_at        REAL,
    -- The last values of the flight row, from the sweep on.
    epoch           INTEGER,
    seq             INTEGER,
    live            INTEGER,
    touched_at      REAL,
    tags            TEXT NOT NULL,
    error           BLOB,
    context         BLOB,
    output          BLOB,
    input           BLOB NOT NULL
);

CREATE INDEX execution_by_age ON execution (created_at, id);
CREATE INDEX execution_by_workflow ON execution (workflow, created_at, id);
CREATE INDEX execution_by_state ON execution (state, created_at, id);
CREATE INDEX execution_by_parent ON execution (parent, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX execution_by_end ON execution (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE execution_tag (
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    created_at REAL NOT NULL,
    execution  TEXT NOT NULL,
    PRIMARY KEY (name, value, created_at, execution)
) WITHOUT ROWID;

CREATE TABLE flight (
    number     INTEGER PRIMARY KEY, -- of the execution
    id         TEXT NOT NULL UNIQUE,
    state      TEXT NOT NULL,
    definition TEXT NOT NULL,
    epoch      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    live       INTEGER NOT NULL,
    priority   INTEGER NOT NULL,
    touched_at REAL NOT NULL,
    paused_at  REAL,
    ended_at   REAL
);

-- Ended executions that are not swept yet. Untouched until an execution ends.
CREATE INDEX flight_ended ON flight (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE token (
    number    INTEGER PRIMARY KEY,
    execution INTEGER NOT NULL,
    id        TEXT NOT NULL,
    state     TEXT NOT NULL,
    scope     TEXT NOT NULL,
    kind      TEXT NOT NULL,
    node      TEXT NOT NULL,
    queue     TEXT NOT NULL,
    priority  INTEGER NOT NULL,
    live      INTEGER NOT NULL,
    ready_at  REAL NOT NULL,
    turn      INTEGER NOT NULL DEFAULT 0, -- order among tokens that became ready at the same instant
    fence     INTEGER NOT NULL DEFAULT 0,
    attempt   INTEGER NOT NULL DEFAULT 1,
    losses    INTEGER NOT NULL DEFAULT 0,
    reason    TEXT NOT NULL DEFAULT '',
    owner     TEXT,
    due       REAL,
    barrier   TEXT,
    limit_key TEXT,
    digest    BLOB,
    data      BLOB NOT NULL,
    UNIQUE (execution, id)
);

-- Leased and consumed tokens are in neither: a chain's steps pay for no index. A token that was lost with its
-- worker three times (SUSPECT_LOSSES) is in a line of its own, so that claims need not skip it.
CREATE INDEX token_ready ON token (queue, losses >= 3, priority DESC, ready_at, turn) WHERE state = 'ready';
CREATE INDEX token_due ON token (due) WHERE state = 'parked' AND due IS NOT NULL;

CREATE TABLE scope (
    execution INTEGER NOT NULL,
    path      TEXT NOT NULL,
    barrier   TEXT NOT NULL,
    slot      INTEGER NOT NULL,
    live      INTEGER NOT NULL,
    ended     INTEGER NOT NULL,
    PRIMARY KEY (execution, path)
) WITHOUT ROWID;

CREATE TABLE barrier (
    execution       INTEGER NOT NULL,
    id              TEXT NOT NULL,
    scope           TEXT NOT NULL,
    node            TEXT NOT NULL,
    mode            TEXT NOT NULL,
    expected        INTEGER NOT NULL,
    join_token      TEXT NOT NULL,
    state           TEXT NOT NULL,
    resolved        INTEGER NOT NULL,
    live            INTEGER NOT NULL,
    deadline        REAL,
    milestone_at    INTEGER,
    milestone_token TEXT,
    PRIMARY KEY (execution, id)
) WITHOUT ROWID;

CREATE TABLE slot (
    execution INTEGER NOT NULL,
    barrier   TEXT NOT NULL,
    slot      INTEGER NOT NULL,
    live      INTEGER NOT NULL,
    data      BLOB,
    PRIMARY KEY (execution, barrier, slot)
) WITHOUT ROWID;

CREATE TABLE gate (
    execution INTEGER NOT NULL,
    id        TEXT NOT NULL,
    count     INTEGER NOT NULL,
    used      TEXT NOT NULL, -- JSON list of out-edge positions
    PRIMARY KEY (execution, id)
) WITHOUT ROWID;

CREATE TABLE left_context (
    execution INTEGER NOT NULL,
    scope     TEXT NOT NULL,
    key       TEXT NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, scope, key)
) WITHOUT ROWID;

CREATE TABLE output (
    execution INTEGER NOT NULL,
    id        TEXT NOT NULL,
    data      BLOB NOT NULL,
    UNIQUE (execution, id)
);

CREATE TABLE event (
    execution INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    kind      TEXT NOT NULL,
    node      TEXT NOT NULL,
    scope     TEXT NOT NULL,
    at        REAL NOT NULL,
    token     TEXT,
    arrived   INTEGER,
    expected  INTEGER,
    data      BLOB,
    UNIQUE (execution, seq)
);

CREATE TABLE outbox (
    turn      INTEGER PRIMARY KEY,
    id        TEXT NOT NULL UNIQUE,
    execution TEXT NOT NULL,
    topic     TEXT NOT NULL,
    data      BLOB NOT NULL
);

-- A blob may be put before its execution is committed, so it names its owner by id.
CREATE TABLE blob (
    execution TEXT NOT NULL,
    id        TEXT NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, id)
);

CREATE TABLE worker (
    id         TEXT NOT NULL PRIMARY KEY,
    expires_at REAL, -- NULL: holds leases, but was never heard of
    suspect    INTEGER, -- the last token it was given that killed workers before
    info       BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE definition (
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    hash       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    created_at REAL NOT NULL,
    source     BLOB NOT NULL,
    PRIMARY KEY (name, version),
    UNIQUE (name, hash)
);

CREATE INDEX definition_by_hash ON definition (hash);

CREATE TABLE definition_current (
    name    TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;

-- An execution as readers see it: counters from the flight row as long as there is one.
CREATE VIEW execution_view AS
SELECT execution.id, workflow, version, execution.definition, execution.state, input, created_at,
       coalesce(flight.touched_at, execution.touched_at, created_at) AS touched_at,
       coalesce(flight.epoch, execution.epoch, 0) AS epoch,
       coalesce(flight.live, execution.live, 0) AS live,
       coalesce(flight.seq, execution.seq, 0) AS seq,
       execution.priority, tags, idempotency_key, parent, relation, execution.paused_at, execution.ended_at,
       output, context, error
FROM execution
LEFT JOIN flight ON flight.number = execution.number;

CREATE VIEW token_view AS
SELECT execution.id AS execution, token.id, token.state, scope, kind, node, queue, token.priority, token.live,
       datetime(ready_at, 'unixepoch') AS ready_at, fence, attempt, losses, reason, owner,
       datetime(due, 'unixepoch') AS due, barrier, limit_key, token.number
FROM token
JOIN execution ON execution.number = token.execution;

CREATE VIEW event_view AS
SELECT execution.id AS execution, event.seq, kind, node, scope, datetime(at, 'unixepoch') AS at, token, arrived,
       expected, CAST(data AS TEXT) AS data
FROM event
JOIN execution ON execution.number = event.execution;
