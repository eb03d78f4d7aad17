-- stage: pre
--
-- The archive: definitions, records that people set up, large values, and the indexes by which executions are
-- found.
--
-- Lists of executions: each filter, and each common pair of filters, walks an index from the newest row on. A list
-- of states or kinds is walked lane by lane and merged, so an index with the state before the age serves requests
-- with and without states. Ordinary executions (no parent, no tag, no key, not failed) pay for the first four
-- only.

-- In an order of its own (the columns are never NULL): the planner uses it for the walk over all rows and for no
-- other.
CREATE INDEX execution_by_age ON execution (created_at DESC NULLS LAST, id DESC NULLS LAST);
CREATE INDEX execution_by_workflow ON execution (workflow, state, created_at, id);
CREATE INDEX execution_by_state ON execution (state, kind, created_at, id);
CREATE INDEX execution_by_end ON execution (state, ended_at, created_at, id) WHERE ended_at IS NOT NULL;

CREATE INDEX execution_by_parent ON execution (parent, state, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX execution_by_relation ON execution (relation, state, created_at, id) WHERE relation IS NOT NULL;
CREATE INDEX execution_by_key ON execution (idempotency_key, created_at, id) WHERE idempotency_key IS NOT NULL;

CREATE TABLE execution_tag (
    name       text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    created_at float8 NOT NULL, -- of the execution
    execution  text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, value, created_at, execution)
);

CREATE INDEX execution_tag_by_value ON execution_tag (value, created_at, execution);

-- The words of the errors of failed executions. Written by the sweep, so that no ending waits for it.
CREATE TABLE failure_word (
    word       text COLLATE "C" NOT NULL,
    created_at float8 NOT NULL, -- of the execution
    execution  text COLLATE "C" NOT NULL,
    PRIMARY KEY (word, created_at, execution)
);

-- A blob may be put before its execution is committed. Its bytes are hardly ever worth compressing again.
CREATE TABLE blob (
    execution text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, id)
);

ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE definition (
    name       text COLLATE "C" NOT NULL,
    version    integer NOT NULL,
    hash       text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    created_at float8 NOT NULL,
    source     bytea NOT NULL,
    PRIMARY KEY (name, version),
    UNIQUE (name, hash)
);

CREATE INDEX definition_by_hash ON definition (hash);

-- One row for every name that was ever deployed: every change of a name locks it first.
CREATE TABLE definition_name (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    current integer, -- NULL: all its versions were removed
    highest integer NOT NULL DEFAULT 0 -- the highest version that was ever given: no number is given twice
);

-- Names for versions, such as `stable`. `latest` is never stored: it is the current version.
CREATE TABLE definition_alias (
    name    text COLLATE "C" NOT NULL,
    alias   text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (name, alias)
);

-- Records that people set up (keys, credentials, webhooks, limits), and logs of their changes.
CREATE TABLE record (
    kind       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    created_at float8 NOT NULL,
    changed_at float8 NOT NULL,
    data       bytea NOT NULL,
    PRIMARY KEY (kind, id)
);

-- One row per log: an append locks it, so that numbers become visible in their order.
CREATE TABLE log (
    name   text COLLATE "C" NOT NULL PRIMARY KEY,
    newest bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE log_entry (
    log    text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    at     float8 NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (log, number)
);
