-- stage: pre
--
-- The first schema of a Dal Segno store on PostgreSQL.
--
-- An execution is two rows. `execution` is its record: written when it starts, pauses, resumes and ends. `flight`
-- is its lock and its counters: small, written at most once by every commit, so that the update stays on its page,
-- and deleted once the execution is swept. Searches for unfinished work read few rows.
--
-- Inside the database an execution has a number: the day of its start (days since 1970, times 2^40) plus a
-- counter. Numbers are short and grow, so that the rows of running executions are close together at the end of
-- each index. History is partitioned by the number and has one partition per day of starts: retention drops whole
-- days.
--
-- Names are compared byte by byte (COLLATE "C"), which is the order of code points. Payloads are bytea and opaque.
-- Times are Unix seconds.

-- Numbers are reserved in blocks of a thousand: one query for a thousand starts.
CREATE SEQUENCE execution_number INCREMENT BY 1000;

-- Order among tokens: by spawning, and among those that became ready at the same instant.
CREATE SEQUENCE turn;

CREATE TABLE execution (
    number          bigint PRIMARY KEY,
    id              text COLLATE "C" NOT NULL UNIQUE,
    workflow        text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    definition      text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    created_at      float8 NOT NULL,
    priority        integer NOT NULL,
    parent          text COLLATE "C",
    relation        text COLLATE "C",
    idempotency_key text COLLATE "C",
    paused_at       float8,
    ended_at        float8,
    -- The last values of the flight row, once that is gone.
    epoch           integer,
    seq             integer,
    live            integer,
    touched_at      float8,
    tags            text NOT NULL, -- JSON list of pairs
    error           bytea,
    context         bytea,
    output          bytea,
    input           bytea NOT NULL
);

CREATE TABLE flight (
    number     bigint PRIMARY KEY, -- of the execution
    id         text COLLATE "C" NOT NULL UNIQUE,
    state      text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    epoch      integer NOT NULL,
    seq        integer NOT NULL,
    live       integer NOT NULL, -- live tokens of the root scope
    priority   integer NOT NULL,
    paused_at  float8,
    touched_at float8 NOT NULL,
    ended_at   float8,
    kind       text COLLATE "C" NOT NULL,
    notify     bytea, -- what the ending puts into the outbox
    version    bigint NOT NULL DEFAULT 0 -- incremented by every change of rows of this execution, except by claims
) WITH (fillfactor = 50);

-- Ended executions that are not swept yet. Untouched until an execution ends.
CREATE INDEX flight_ended ON flight (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE token (
    execution bigint NOT NULL,
    id        text COLLATE "C" NOT NULL,
    number    bigint NOT NULL DEFAULT nextval('turn'), -- in which order they were spawned
    state     text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    node      text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    priority  integer NOT NULL,
    live      boolean NOT NULL,
    ready_at  float8 NOT NULL,
    turn      bigint NOT NULL DEFAULT 0, -- order among tokens that became ready at the same instant
    fence     integer NOT NULL DEFAULT 0,
    attempt   integer NOT NULL DEFAULT 1,
    losses    integer NOT NULL DEFAULT 0,
    reason    text COLLATE "C" NOT NULL DEFAULT '',
    owner     text COLLATE "C",
    due       float8,
    barrier   text COLLATE "C", -- of a join token: the barrier it is parked at
    awaits    text COLLATE "C", -- of a parked token: what wakes it besides its time
    limit_key text COLLATE "C",
    allowance text COLLATE "C", -- of a token with a limit key: the allowance of its definition, as JSON
    digest    bytea,            -- of the last transition applied to it
    data      bytea NOT NULL,
    PRIMARY KEY (execution, id)
) WITH (fillfactor = 80);

-- Consumed tokens are in none of these. A token that was lost with its worker three times (SUSPECT_LOSSES) is in a
-- line of its own, so that claims need not skip it; one with a limit key in a line per queue and key. (As a
-- number: the planner would rewrite a boolean condition, and then not see that the index fits.)
CREATE INDEX token_ready ON token (queue, (CASE WHEN losses >= 3 THEN 1 ELSE 0 END), priority DESC, ready_at, turn)
    WHERE state = 'ready' AND limit_key IS NULL;
CREATE INDEX token_in_line
    ON token (queue, limit_key, (CASE WHEN losses >= 3 THEN 1 ELSE 0 END), priority DESC, ready_at, turn)
    WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX token_due ON token (due, number) WHERE state = 'parked' AND due IS NOT NULL;
CREATE INDEX token_leased ON token (owner, queue) WHERE state = 'leased';
CREATE INDEX token_suspect ON token (owner) WHERE state = 'leased' AND losses >= 3;
CREATE INDEX token_in_use ON token (limit_key) WHERE state = 'leased' AND limit_key IS NOT NULL;
CREATE INDEX token_using ON token (execution) WHERE state = 'leased' AND limit_key IS NOT NULL;
CREATE INDEX token_awaiting ON token (execution, awaits) WHERE awaits IS NOT NULL;
-- 'signal;' is the first text after all that begin with 'signal:'.
CREATE INDEX token_awaiting_signal ON token (execution)
    WHERE state = 'parked' AND awaits >= 'signal:' AND awaits < 'signal;';

CREATE TABLE scope (
    execution bigint NOT NULL,
    path      text COLLATE "C" NOT NULL,
    barrier   text COLLATE "C" NOT NULL,
    slot      integer NOT NULL,
    live      integer NOT NULL,
    ended     boolean NOT NULL,
    PRIMARY KEY (execution, path)
) WITH (fillfactor = 60);

CREATE TABLE barrier (
    execution       bigint NOT NULL,
    id              text COLLATE "C" NOT NULL,
    scope           text COLLATE "C" NOT NULL,
    node            text COLLATE "C" NOT NULL,
    mode            text COLLATE "C" NOT NULL,
    expected        integer NOT NULL,
    join_token      text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    resolved        integer NOT NULL,
    live            integer NOT NULL,
    deadline        float8,
    milestone_at    integer,
    milestone_token text COLLATE "C",
    PRIMARY KEY (execution, id)
) WITH (fillfactor = 50);

CREATE TABLE slot (
    execution bigint NOT NULL,
    barrier   text COLLATE "C" NOT NULL,
    slot      integer NOT NULL,
    live      boolean NOT NULL,
    data      bytea,
    PRIMARY KEY (execution, barrier, slot)
);

CREATE TABLE gate (
    execution bigint NOT NULL,
    id        text COLLATE "C" NOT NULL,
    count     integer NOT NULL, -- open in-edges plus live visits
    used      text NOT NULL, -- JSON list of out-edge positions
    PRIMARY KEY (execution, id)
) WITH (fillfactor = 50);

CREATE TABLE left_context (
    execution bigint NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, scope, key)
);

-- One row per unfinished script, written by each of its commits.
CREATE TABLE machine (
    execution    bigint PRIMARY KEY,
    version      integer NOT NULL,
    inbox        integer NOT NULL, -- number of the newest completion
    read         integer NOT NULL, -- number up to which the last run has read
    unread       integer NOT NULL,
    last_success integer NOT NULL,
    last_failure integer NOT NULL,
    kept         integer NOT NULL, -- rows in the inbox
    resuming     boolean NOT NULL, -- there is a resume token for this version
    cancel       text COLLATE "C" NOT NULL,
    interrupted  boolean NOT NULL,
    line         integer NOT NULL,
    wake         text NOT NULL, -- JSON
    reachable    text NOT NULL, -- JSON list of half-open ranges
    snapshot     bytea NOT NULL
) WITH (fillfactor = 60);

CREATE TABLE inbox (
    execution bigint NOT NULL,
    number    integer NOT NULL,
    promise   bigint NOT NULL,
    ok        boolean NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, number)
);

-- A signal that was taken stays as a tombstone without data, by which a duplicate is recognised.
CREATE TABLE mailbox (
    execution bigint NOT NULL,
    id        text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    number    integer NOT NULL,
    place     integer NOT NULL, -- the number it took in the inbox when it came
    taken     boolean NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, id)
);

CREATE INDEX mailbox_waiting ON mailbox (execution, name, number) WHERE NOT taken;

-- History: one partition per day of starts, created ahead. Rows without one go to the default partition, and are
-- removed row by row.
CREATE TABLE event (
    execution bigint NOT NULL,
    seq       integer NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    node      text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    at        float8 NOT NULL,
    token     text COLLATE "C",
    arrived   integer,
    expected  integer,
    data      bytea,
    PRIMARY KEY (execution, seq)
) PARTITION BY RANGE (execution);

CREATE TABLE event_other PARTITION OF event DEFAULT;

CREATE TABLE output (
    execution bigint NOT NULL,
    id        text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, id)
) PARTITION BY RANGE (execution);

CREATE TABLE output_other PARTITION OF output DEFAULT;

CREATE TABLE outbox (
    turn      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id        text COLLATE "C" NOT NULL UNIQUE,
    execution text COLLATE "C" NOT NULL,
    topic     text COLLATE "C" NOT NULL,
    data      bytea NOT NULL
);

CREATE TABLE worker (
    id         text COLLATE "C" PRIMARY KEY,
    expires_at float8 NOT NULL,
    info       bytea NOT NULL
) WITH (fillfactor = 50);

-- Limits by key. Slots are not counted: those in use are the leased tokens of the key, and the executions that
-- hold one, both found by an index. So no crash can leak one. A transaction that changes a line, or leases a token
-- of its key, holds the key's advisory lock.
CREATE TABLE line (
    queue    text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    priority integer NOT NULL, -- of its first token, or higher
    turn_at  float8 NOT NULL, -- when it was last served, or first had a token
    turn     bigint NOT NULL, -- order among lines of the same moment
    shut     boolean NOT NULL DEFAULT false, -- the key was used up when a claim last looked
    opens_at float8, -- of a line that is shut by a rate
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 50);

CREATE INDEX line_open ON line (queue, priority DESC, turn_at, turn) WHERE NOT shut;
CREATE INDEX line_by_key ON line (key);
CREATE INDEX line_opening ON line (opens_at) WHERE opens_at IS NOT NULL;

-- The operators' rules. NULL: the definition's value applies.
CREATE TABLE limit_rule (
    key         text COLLATE "C" PRIMARY KEY,
    concurrency integer,
    starts      integer,
    period      float8, -- seconds in which there are at most so many starts
    changed_at  float8 NOT NULL
);

-- The last starts of keys with a rate, numbered upwards, as many as the rate allows in its period.
CREATE TABLE limit_start (
    key      text COLLATE "C" NOT NULL,
    number   bigint NOT NULL,
    at       float8 NOT NULL,
    stale_at float8 NOT NULL, -- when it no longer matters
    PRIMARY KEY (key, number)
);

CREATE INDEX limit_start_stale ON limit_start (stale_at);

-- Executions that hold a slot from their beginning to their end.
CREATE TABLE slot_holder (
    key       text COLLATE "C" NOT NULL,
    execution bigint NOT NULL,
    PRIMARY KEY (key, execution)
);

CREATE INDEX slot_holder_execution ON slot_holder (execution);

-- An execution as readers see it: counters from the flight row as long as there is one.
CREATE VIEW execution_view AS
SELECT execution.id, workflow, execution.version, execution.definition, execution.state, input, created_at,
       coalesce(flight.touched_at, execution.touched_at, created_at) AS touched_at,
       coalesce(flight.epoch, execution.epoch, 0) AS epoch,
       coalesce(flight.live, execution.live, 0) AS live,
       coalesce(flight.seq, execution.seq, 0) AS seq,
       execution.priority, tags, idempotency_key, parent, relation, execution.paused_at, execution.ended_at,
       output, context, error, execution.kind
FROM execution
LEFT JOIN flight ON flight.number = execution.number;
