-- Lists of executions: each filter, and each common pair of filters, walks an index from the newest row on.
--
-- A list of states or kinds is walked lane by lane and merged, so an index with the state before the age serves
-- requests with and without states: one index instead of two. Ordinary executions (no parent, no tag, no key, not
-- failed) pay for the first three only.

DROP INDEX execution_by_workflow;
DROP INDEX execution_by_state;
DROP INDEX execution_by_end;
DROP INDEX execution_by_parent;
DROP INDEX execution_schedules;

CREATE INDEX execution_by_workflow ON execution (workflow, state, created_at, id);
CREATE INDEX execution_by_state ON execution (state, kind, created_at, id);
CREATE INDEX execution_by_end ON execution (state, ended_at, created_at, id) WHERE ended_at IS NOT NULL;

CREATE INDEX execution_by_parent ON execution (parent, state, created_at, id) WHERE parent IS NOT NULL;
CREATE INDEX execution_by_relation ON execution (relation, state, created_at, id) WHERE relation IS NOT NULL;
CREATE INDEX execution_by_key ON execution (idempotency_key, created_at, id) WHERE idempotency_key IS NOT NULL;
CREATE INDEX execution_tag_by_value ON execution_tag (value, created_at, execution);

-- The words of the errors of failed executions. Written by the sweep, so that no ending waits for it.
CREATE TABLE failure_word (
    word       TEXT NOT NULL,
    created_at REAL NOT NULL, -- of the execution
    execution  TEXT NOT NULL,
    PRIMARY KEY (word, created_at, execution)
) WITHOUT ROWID;

-- The highest removed version of each name: its number is not used again.
CREATE TABLE definition_removed (
    name    TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;
