-- Scripts: machines, completions and signals; and tokens of graphs that wait for an arrival.

ALTER TABLE execution ADD COLUMN kind TEXT NOT NULL DEFAULT 'graph';
ALTER TABLE flight ADD COLUMN kind TEXT NOT NULL DEFAULT 'graph';
ALTER TABLE flight ADD COLUMN notify BLOB; -- what the ending puts into the outbox
ALTER TABLE token ADD COLUMN awaits TEXT; -- of a parked token: what else than its time wakes it

-- By the execution and `awaits`, which ordinary steps do not change: they pay for no index.
CREATE INDEX token_awaiting ON token (execution, awaits) WHERE awaits IS NOT NULL;

-- One row per unfinished script, written by each of its commits. The snapshot comes last.
CREATE TABLE machine (
    execution    INTEGER PRIMARY KEY,
    version      INTEGER NOT NULL,
    inbox        INTEGER NOT NULL, -- number of the newest completion
    read         INTEGER NOT NULL, -- number up to which the last run has read
    unread       INTEGER NOT NULL,
    last_success INTEGER NOT NULL,
    last_failure INTEGER NOT NULL,
    kept         INTEGER NOT NULL, -- rows in the inbox
    resuming     INTEGER NOT NULL, -- whether there is a resume token for this version
    cancel       TEXT NOT NULL,
    interrupted  INTEGER NOT NULL,
    line         INTEGER NOT NULL,
    wake         TEXT NOT NULL, -- JSON
    reachable    TEXT NOT NULL, -- JSON list of half-open ranges
    snapshot     BLOB NOT NULL
);

CREATE TABLE inbox (
    execution INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    promise   INTEGER NOT NULL,
    ok        INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, number)
) WITHOUT ROWID;

-- A signal that was taken stays as a tombstone without data, by which a duplicate is recognised.
CREATE TABLE mailbox (
    execution INTEGER NOT NULL,
    id        TEXT NOT NULL,
    name      TEXT NOT NULL,
    number    INTEGER NOT NULL,
    taken     INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, id)
) WITHOUT ROWID;

CREATE INDEX mailbox_waiting ON mailbox (execution, name, number) WHERE taken = 0;

DROP VIEW execution_view;

CREATE VIEW execution_view AS
SELECT execution.id, workflow, version, execution.definition, execution.state, input, created_at,
       coalesce(flight.touched_at, execution.touched_at, created_at) AS touched_at,
       coalesce(flight.epoch, execution.epoch, 0) AS epoch,
       coalesce(flight.live, execution.live, 0) AS live,
       coalesce(flight.seq, execution.seq, 0) AS seq,
       execution.priority, tags, idempotency_key, parent, relation, execution.paused_at, execution.ended_at,
       output, context, error, execution.kind
FROM execution
LEFT JOIN flight ON flight.number = execution.number;

DROP VIEW token_view;

CREATE VIEW token_view AS
SELECT execution.id AS execution, token.id, token.state, scope, token.kind, node, queue, token.priority, token.live,
       datetime(ready_at, 'unixepoch') AS ready_at, fence, attempt, losses, reason, owner,
       datetime(due, 'unixepoch') AS due, awaits, barrier, limit_key, token.number
FROM token
JOIN execution ON execution.number = token.execution;

DROP VIEW event_view;

CREATE VIEW event_view AS
SELECT execution.id AS execution, event.seq, event.kind, node, scope, datetime(at, 'unixepoch') AS at, token, arrived,
       expected, CAST(data AS TEXT) AS data
FROM event
JOIN execution ON execution.number = event.execution;

CREATE VIEW machine_view AS
SELECT execution.id AS execution, machine.version, inbox, read, unread, kept, resuming, cancel, interrupted, line, wake,
       reachable, length(snapshot) AS snapshot_bytes
FROM machine
JOIN execution ON execution.number = machine.execution;
