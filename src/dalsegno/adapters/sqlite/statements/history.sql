-- History of executions: events, outputs, blobs, and the outbox.

-- :name insert_event
-- Fails on a number that exists: the sequence of an execution is counted in its flight row (L8).
INSERT INTO event (execution, seq, kind, node, scope, at, data, token, arrived, expected)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_step
-- The hot path: the event of a step has data and names its token.
INSERT INTO event (execution, seq, kind, node, scope, at, data, token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_note
-- The same for events without a token: a start, an ending.
INSERT INTO event (execution, seq, kind, node, scope, at, data)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- :name save_output
INSERT INTO output (execution, id, data)
VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET data = excluded.data;

-- :name output_of
SELECT data
FROM output
WHERE execution = (SELECT number FROM execution WHERE execution.id = ?) AND id = ?;

-- :name put_blob
INSERT INTO blob (execution, id, data, turn, pieces)
VALUES (?, ?, ?, ?, ?);

-- :name put_piece
-- The id names the content: a piece that exists is the same.
INSERT INTO blob_piece (execution, id, number, data)
VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- :name count_pieces
SELECT count(*)
FROM blob_piece
WHERE execution = ? AND id = ?;

-- :name delete_pieces
DELETE FROM blob_piece
WHERE execution = ? AND id = ?;

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

-- :part prunable
-- Put with a turn before this one, and not kept; of the named ones if any are.
execution = :execution AND turn < :turn AND id NOT IN (SELECT value FROM json_each(:keep))
  AND (:named IS NULL OR id IN (SELECT value FROM json_each(:named)))

-- :name prunable_bytes
SELECT coalesce(sum(length(data) + coalesce((
    SELECT sum(length(blob_piece.data))
    FROM blob_piece
    WHERE blob.pieces > 0 AND blob_piece.execution = blob.execution AND blob_piece.id = blob.id
), 0)), 0)
FROM blob
WHERE
-- :include prunable
;

-- :name prunable_pieces
SELECT id, pieces
FROM blob
WHERE pieces > 0 AND
-- :include prunable
;

-- :name prune_piece
-- Unless the blob was put again since its row was deleted.
DELETE FROM blob_piece
WHERE execution = :execution AND id = :id AND number = :number
  AND NOT EXISTS (SELECT 1 FROM blob WHERE blob.execution = :execution AND blob.id = :id);

-- :name prune_blobs
DELETE FROM blob
WHERE
-- :include prunable
;

-- :name blob
SELECT data, pieces
FROM blob
WHERE execution = ? AND id = ?;

-- :name pieces
SELECT data
FROM blob_piece
WHERE execution = ? AND id = ?
ORDER BY number;

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

-- :name is_owed
SELECT 1
FROM outbox
WHERE id = ?;

-- :name oldest_entry
SELECT id
FROM outbox
ORDER BY turn
LIMIT 1;

-- :name delivered
DELETE FROM outbox
WHERE id = ?;
