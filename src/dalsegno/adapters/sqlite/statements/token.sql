-- Tokens. Every SELECT lists the columns in the order of TokenRow.

-- :name one
SELECT execution, id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt,
       losses, reason, barrier, ready_at, digest
FROM token
WHERE execution = ? AND id = ?;

-- :name many
-- From a JSON list of [execution, id] pairs. Only warms: what is not found is asked for again one by one.
SELECT execution, id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt,
       losses, reason, barrier, ready_at, digest
FROM json_each(?) AS wanted
JOIN token ON execution = json_extract(wanted.value, '$[0]') AND id = json_extract(wanted.value, '$[1]');

-- :name unfinished
-- What has neither been consumed nor cancelled in one execution.
SELECT execution, id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt,
       losses, reason, barrier, ready_at, digest
FROM token
WHERE execution = ? AND state IN ('ready', 'leased', 'parked', 'held');

-- :name ready
-- Ready tokens of one queue by priority, then age: reads as many index entries as it returns.
SELECT execution, id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt,
       losses, reason, barrier, ready_at, digest, turn
FROM token
WHERE state = 'ready' AND losses < 3 AND queue = ?
ORDER BY priority DESC, ready_at, turn
LIMIT ?;

-- :name suspect
-- The same for tokens that killed workers before; 3 is SUSPECT_LOSSES.
SELECT execution, id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt,
       losses, reason, barrier, ready_at, digest, turn
FROM token
WHERE state = 'ready' AND losses >= 3 AND queue = ?
ORDER BY priority DESC, ready_at, turn
LIMIT ?;

-- :name holds_suspect
SELECT 1
FROM token
WHERE state = 'leased' AND losses >= 3 AND owner = ?
LIMIT 1;

-- :name due
-- Parked tokens whose time has come, earliest first.
SELECT execution, id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt,
       losses, reason, barrier, ready_at, digest
FROM token
WHERE state = 'parked' AND due IS NOT NULL AND due <= ?
ORDER BY due
LIMIT ?;

-- :name next_due
SELECT due
FROM token
WHERE state = 'parked' AND due IS NOT NULL
ORDER BY due
LIMIT 1;

-- :name leased_by
-- The only scan of the table; asked when a worker is known to be gone. The parameter is a JSON list of workers.
SELECT execution, id
FROM token
WHERE state = 'leased' AND owner IN (SELECT value FROM json_each(?));

-- :name ready_of
SELECT id, execution, queue, priority
FROM token
WHERE execution = ? AND state = 'ready'
ORDER BY ready_at, turn;

-- :name insert
-- Fails when the id exists: spawning is judged before.
INSERT INTO token (execution, id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence,
                   owner, attempt, losses, reason, barrier, ready_at, digest, turn)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_kept
-- The hot path: a token that its spawner keeps, leased from birth.
INSERT INTO token (execution, id, scope, kind, node, data, queue, priority, live, owner, ready_at, state, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'leased', 1);

-- :name consume
-- The hot path: a tombstone keeps the digest, by which the same commit is recognised when it comes again.
UPDATE token
SET state = 'consumed', owner = NULL, data = x'', digest = ?
WHERE execution = ? AND id = ?;

-- :name lease
UPDATE token
SET state = 'leased', owner = ?, fence = ?
WHERE execution = ? AND id = ?;

-- :name change
UPDATE token
SET data = ?, state = ?, due = ?, fence = ?, owner = ?, attempt = ?, losses = ?, reason = ?, barrier = ?,
    ready_at = ?, digest = ?, turn = ?
WHERE execution = ? AND id = ?;
