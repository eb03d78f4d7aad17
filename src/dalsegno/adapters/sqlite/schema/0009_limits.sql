-- Limits by key: how many tokens of a key may be leased at once, and how many may start in a period.
--
-- Slots are not counted: those in use are the leased tokens of the key, and the executions that hold one, both
-- found by an index. So no crash can leak one.

ALTER TABLE token ADD COLUMN allowance TEXT; -- of a token with a limit key: what its definition allows, as JSON

-- Tokens without a key are in one line per queue, as before; those with a key in one line per queue and key.
DROP INDEX token_ready;
CREATE INDEX token_ready ON token (queue, losses >= 3, priority DESC, ready_at, turn)
    WHERE state = 'ready' AND limit_key IS NULL;
CREATE INDEX token_in_line ON token (queue, limit_key, losses >= 3, priority DESC, ready_at, turn)
    WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX token_suspect_in_line ON token (queue) WHERE state = 'ready' AND limit_key IS NOT NULL AND losses >= 3;
CREATE INDEX token_in_use ON token (limit_key) WHERE state = 'leased' AND limit_key IS NOT NULL;
CREATE INDEX token_using ON token (execution) WHERE state = 'leased' AND limit_key IS NOT NULL;

-- One row per queue and key with ready tokens. `shut`: the key was used up at the last claim. A freed slot opens
-- the key's lines again; so claims never meet lines that cannot move, however many there are.
CREATE TABLE line (
    queue    TEXT NOT NULL,
    key      TEXT NOT NULL,
    priority INTEGER NOT NULL, -- of its first token, or higher
    turn_at  REAL NOT NULL, -- when it was last served, or first had a token
    turn     INTEGER NOT NULL, -- order among lines of the same moment
    shut     INTEGER NOT NULL DEFAULT 0,
    opens_at REAL, -- of a line that is shut by a rate
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE INDEX line_open ON line (queue, priority DESC, turn_at, turn) WHERE shut = 0;
CREATE INDEX line_by_key ON line (key);
CREATE INDEX line_opening ON line (opens_at) WHERE opens_at IS NOT NULL;

-- The operators' rules. NULL: the definition's value applies.
CREATE TABLE limit_rule (
    key         TEXT NOT NULL PRIMARY KEY,
    concurrency INTEGER,
    starts      INTEGER,
    period      REAL, -- seconds in which there are at most so many starts
    changed_at  REAL NOT NULL
) WITHOUT ROWID;

-- The last starts of keys with a rate, numbered upwards, as many as the rate allows in its period.
CREATE TABLE limit_start (
    key      TEXT NOT NULL,
    number   INTEGER NOT NULL,
    at       REAL NOT NULL,
    stale_at REAL NOT NULL, -- when it no longer matters
    PRIMARY KEY (key, number)
) WITHOUT ROWID;

CREATE INDEX limit_start_stale ON limit_start (stale_at);

-- Executions that hold a slot from their beginning to their end.
CREATE TABLE slot_holder (
    key       TEXT NOT NULL,
    execution INTEGER NOT NULL,
    PRIMARY KEY (key, execution)
) WITHOUT ROWID;

CREATE INDEX slot_holder_execution ON slot_holder (execution);

-- Stores of an earlier version may have ready tokens with a key.
INSERT INTO line (queue, key, priority, turn_at, turn)
SELECT queue, limit_key, max(priority), min(ready_at), 0
FROM token
WHERE state = 'ready' AND limit_key IS NOT NULL
GROUP BY queue, limit_key;

DROP VIEW token_view;

CREATE VIEW token_view AS
SELECT execution.id AS execution, token.id, token.state, scope, token.kind, node, queue, token.priority, token.live,
       datetime(ready_at, 'unixepoch') AS ready_at, fence, attempt, losses, reason, owner,
       datetime(due, 'unixepoch') AS due, awaits, barrier, limit_key, allowance, token.number
FROM token
JOIN execution ON execution.number = token.execution;
