-- The first schema of a Dal Segno store on PostgreSQL: what is stored.
--
-- An execution is two rows. `execution` says what it is and how it ended: written when it starts, pauses, resumes
-- and ends. `flight` is its lock and its counters: small, written at most once by every commit, so that the update
-- stays on its page.
--
-- Names are compared byte by byte (COLLATE "C"), which is the order of code points. Payloads are bytea and never
-- looked into. Times are Unix seconds.

CREATE TABLE execution (
    id              text COLLATE "C" PRIMARY KEY,
    workflow        text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    definition      text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    created_at      float8 NOT NULL,
    priority        integer NOT NULL,
    parent          text COLLATE "C",
    relation        text COLLATE "C",
    idempotency_key text COLLATE "C",
    paused_at       float8,
    ended_at        float8,
    tag_names       text[] NOT NULL,
    tag_values      text[] NOT NULL,
    error           bytea,
    context         bytea,
    output          bytea,
    input           bytea NOT NULL
);

CREATE TABLE flight (
    id         text COLLATE "C" PRIMARY KEY,
    state      text COLLATE "C" NOT NULL,
    definition text COLLATE "C" NOT NULL,
    epoch      integer NOT NULL DEFAULT 0,
    seq        integer NOT NULL DEFAULT 0,
    live       integer NOT NULL DEFAULT 0, -- live tokens of the root scope
    priority   integer NOT NULL,
    touched_at float8 NOT NULL,
    paused_at  float8,
    ended_at   float8
) WITH (fillfactor = 50);

-- Order among tokens that became ready at the same instant.
CREATE SEQUENCE turn;

CREATE TABLE token (
    execution text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    state     text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    node      text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    priority  integer NOT NULL,
    live      boolean NOT NULL,
    ready_at  float8 NOT NULL,
    turn      bigint NOT NULL DEFAULT nextval('turn'),
    fence     integer NOT NULL DEFAULT 0,
    attempt   integer NOT NULL DEFAULT 1,
    losses    integer NOT NULL DEFAULT 0,
    reason    text COLLATE "C" NOT NULL DEFAULT '',
    owner     text COLLATE "C",
    due       float8,
    barrier   text COLLATE "C", -- of a join token: the barrier it is parked at
    limit_key text COLLATE "C",
    digest    bytea,            -- of the last transition applied to it
    data      bytea NOT NULL,
    PRIMARY KEY (execution, id)
) WITH (fillfactor = 80);

-- Leased and consumed tokens are in neither of these: a chain's steps pay for the primary key only.
CREATE INDEX token_ready ON token (queue, priority DESC, ready_at, turn) WHERE state = 'ready';
CREATE INDEX token_due ON token (due, turn) WHERE state = 'parked' AND due IS NOT NULL;

CREATE TABLE scope (
    execution text COLLATE "C" NOT NULL,
    path      text COLLATE "C" NOT NULL,
    barrier   text COLLATE "C" NOT NULL,
    slot      integer NOT NULL,
    live      integer NOT NULL DEFAULT 0,
    ended     boolean NOT NULL DEFAULT false,
    PRIMARY KEY (execution, path)
) WITH (fillfactor = 60);

CREATE TABLE barrier (
    execution       text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    scope           text COLLATE "C" NOT NULL,
    node            text COLLATE "C" NOT NULL,
    mode            text COLLATE "C" NOT NULL,
    expected        integer NOT NULL,
    join_token      text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL DEFAULT 'waiting',
    resolved        integer NOT NULL DEFAULT 0,
    live            integer NOT NULL DEFAULT 0,
    deadline        float8,
    milestone_at    integer,
    milestone_token text COLLATE "C",
    PRIMARY KEY (execution, id)
) WITH (fillfactor = 50);

CREATE TABLE slot (
    execution text COLLATE "C" NOT NULL,
    barrier   text COLLATE "C" NOT NULL,
    slot      integer NOT NULL,
    live      boolean NOT NULL,
    data      bytea,
    PRIMARY KEY (execution, barrier, slot)
);

CREATE TABLE gate (
    execution text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    count     integer NOT NULL, -- open in-edges plus live visits
    used      integer[] NOT NULL,
    PRIMARY KEY (execution, id)
);

CREATE TABLE left_context (
    execution text COLLATE "C" NOT NULL,
    scope     text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, scope, key)
);

CREATE TABLE output (
    execution text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, id)
);

CREATE TABLE event (
    execution text COLLATE "C" NOT NULL,
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
);

CREATE TABLE outbox (
    turn      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id        text COLLATE "C" NOT NULL UNIQUE,
    execution text COLLATE "C" NOT NULL,
    topic     text COLLATE "C" NOT NULL,
    data      bytea NOT NULL
);

-- An execution as readers see it.
CREATE VIEW execution_view AS
SELECT execution.id, workflow, version, execution.definition, execution.state, input, created_at,
       coalesce(touched_at, created_at) AS touched_at, coalesce(epoch, 0) AS epoch, coalesce(live, 0) AS live,
       coalesce(seq, 0) AS seq, execution.priority, tag_names, tag_values, idempotency_key, parent, relation,
       execution.paused_at, execution.ended_at, output, context, error
FROM execution
LEFT JOIN flight ON flight.id = execution.id;
