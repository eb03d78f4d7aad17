-- Tokens. SELECTs list the token's number, then the columns in the order of TokenRow, whose execution is an id.
-- A token never outlives its flight row. CROSS JOIN fixes the order: from the token to its flight.

-- :part columns
token.number, flight.id, token.id, scope, token.kind, node, data, queue, token.priority, limit_key, token.live,
token.state, due, fence, owner, attempt, losses, reason, barrier, ready_at, digest, awaits, allowance

-- :name one
SELECT
-- :include columns
FROM token
JOIN flight ON flight.number = token.execution
WHERE token.execution = ? AND token.id = ?;

-- :name many
-- From a JSON list of [execution number, id] pairs. Only fills the cache: tokens that are not found are read again
-- one by one.
SELECT
-- :include columns
FROM json_each(?) AS wanted
JOIN token ON token.execution = json_extract(wanted.value, '$[0]')
    AND token.id = json_extract(wanted.value, '$[1]')
JOIN flight ON flight.number = token.execution;

-- :name unfinished
-- Tokens of one execution that are neither consumed nor cancelled.
SELECT
-- :include columns
FROM flight
JOIN token ON token.execution = flight.number
WHERE flight.id = ? AND token.state IN ('ready', 'leased', 'parked', 'held');

-- :name awaiting
-- Parked tokens of one execution that wait for this, in no order.
SELECT
-- :include columns
FROM token
JOIN flight ON flight.number = token.execution
WHERE token.execution = ? AND token.awaits = ? AND token.state = 'parked';

-- :name ready_of
SELECT token.id, flight.id, queue, token.priority, node
FROM flight
JOIN token ON token.execution = flight.number
WHERE flight.id = ? AND token.state = 'ready'
ORDER BY ready_at, turn;

-- :name last_number
-- Numbers are assigned in the writer's transaction, one after the other.
SELECT coalesce(max(number), 0)
FROM token;

-- :name insert
-- Fails if the id exists in its execution: that is checked before.
INSERT INTO token (number, execution, id, scope, kind, node, data, priority, live, limit_key, allowance, state, due,
                   fence, owner, attempt, losses, reason, barrier, ready_at, digest, awaits, queue, turn)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_kept
-- The hot path of a chain: a token that its spawner keeps, leased from birth.
INSERT INTO token (number, execution, id, scope, kind, node, data, queue, priority, live, ready_at, owner, state,
                   fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'leased', 1);

-- :name insert_ready
-- The hot path of a fan-out.
INSERT INTO token (number, execution, id, scope, kind, node, data, queue, priority, live, ready_at, turn, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'ready');

-- :name insert_timer
-- Of a script that waits for many.
INSERT INTO token (number, execution, id, scope, kind, node, data, queue, priority, live, ready_at, due, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'parked');

-- :name consume
-- The hot path: a tombstone keeps the digest, by which a repeated commit is recognised.
UPDATE token
SET state = 'consumed', owner = NULL, data = x'', digest = column2
FROM (VALUES (?, ?))
WHERE number = column1;

-- :name lease
UPDATE token
SET state = 'leased', owner = column2, fence = column3
FROM (VALUES (?, ?, ?))
WHERE number = column1;

-- :name make_ready
-- Woken, opened, handed back or lost: a stored token that becomes ready keeps its work.
UPDATE token
SET state = 'ready', owner = NULL, ready_at = column2, turn = column3, reason = column4, losses = column5,
    due = column6, awaits = NULL
FROM (VALUES (?, ?, ?, ?, ?, ?))
WHERE number = column1;

-- :name change
UPDATE token
SET data = ?, state = ?, due = ?, fence = ?, owner = ?, attempt = ?, losses = ?, reason = ?, barrier = ?,
    ready_at = ?, digest = ?, awaits = ?, queue = ?, turn = ?
WHERE number = ?;

-- :name move
-- A task that outlives its script moves to an execution of its own.
UPDATE token
SET execution = ?
WHERE number = ?;
