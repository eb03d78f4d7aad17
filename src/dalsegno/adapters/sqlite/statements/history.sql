-- What executions leave behind: events, outputs, blobs, and what they owe others.

-- :name insert_event
-- Fails on a number that exists: the sequence of an execution is counted in its flight row (L8).
INSERT INTO event (execution, seq, kind, node, scope, at, data, token, arrived, expected)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_step
-- The hot path: what a step records carries data and names its token.
INSERT INTO event (execution, seq, kind, node, scope, at, data, token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_note
-- The same for what is not about a token: a start, an ending.
INSERT INTO event (execution, seq, kind, node, scope, at, data)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- :name events_of
SELECT seq, kind, node, scope, at, data, token, arrived, expected
FROM event
WHERE execution = (SELECT number FROM execution WHERE id = ?) AND seq > ?
ORDER BY seq
LIMIT ?;

-- :name save_output
INSERT INTO output (execution, id, data)
VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET data = excluded.data;

-- :name output_of
SELECT data
FROM output
WHERE execution = (SELECT number FROM execution WHERE execution.id = ?) AND id = ?;

-- :name put_blob
INSERT INTO blob (execution, id, data, turn)
VALUES (?, ?, ?, ?);

-- :name has_blob
SELECT 1
FROM blob
WHERE execution = ? AND id = ?;

-- :name touch_blob
-- The id names the content: a second put changes at most the turn (K1, K5).
UPDATE blob
SET turn = CASE WHEN :turn IS NOT NULL THEN max(turn, :turn) END
WHERE execution = :execution AND id = :id AND turn IS NOT NULL;

-- :name stored_bytes
SELECT bytes
FROM stored_bytes
WHERE execution = ?;

-- :name charge
INSERT INTO stored_bytes (execution, bytes)
VALUES (:execution, max(:size, 0))
ON CONFLICT DO UPDATE SET bytes = max(bytes + :size, 0);

-- :name prunable_bytes
SELECT coalesce(sum(length(data)), 0)
FROM blob
WHERE execution = :execution AND turn < :turn AND id NOT IN (SELECT value FROM json_each(:keep));

-- :name prune_blobs
DELETE FROM blob
WHERE execution = :execution AND turn < :turn AND id NOT IN (SELECT value FROM json_each(:keep));

-- :name blob
SELECT data
FROM blob
WHERE execution = ? AND id = ?;

-- :name insert_outbox
-- Idempotent by its derived id.
INSERT INTO outbox (id, execution, topic, data)
VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- :name outbox
-- Oldest first.
SELECT id, execution, topic, data
FROM outbox
ORDER BY turn
LIMIT ?;

-- :name oldest_entry
SELECT id
FROM outbox
ORDER BY turn
LIMIT 1;

-- :name delivered
DELETE FROM outbox
WHERE id = ?;
