-- What remains of an execution after its ending is swept in chunks; the rows of its tables by the statements of
-- removal.sql.

-- :name ended
-- Executions whose rows are still to be swept, oldest ending first.
SELECT number, id, state, touched_at
FROM flight
WHERE ended_at IS NOT NULL
ORDER BY ended_at
LIMIT ?;

-- :name tokens
SELECT number, id, state, kind, node, scope, live
FROM token
WHERE execution = ?
LIMIT ?;

-- :name delete_token
DELETE FROM token
WHERE number = ?;

-- :name seq
SELECT seq
FROM flight
WHERE number = ?;

-- :name count_event
-- Events that the sweep adds continue the sequence.
UPDATE flight
SET seq = ?
WHERE number = ?;

-- :name failures
-- The error of an execution.
SELECT created_at, id, error
FROM execution
WHERE number = ?;

-- :name insert_words
INSERT OR IGNORE INTO failure_word (word, created_at, execution)
VALUES (?, ?, ?);

-- :name land
-- The record takes over the counters of the flight row, which is deleted in the same transaction. One that has
-- them already is not written again: SQLite would read and write all of its output for that.
UPDATE execution
SET (epoch, seq, live, touched_at) = (
    SELECT epoch, seq, live, touched_at FROM flight WHERE flight.number = :execution
)
WHERE number = :execution AND NOT EXISTS (
    SELECT 1
    FROM flight
    WHERE flight.number = :execution AND flight.epoch = execution.epoch AND flight.seq = execution.seq
      AND flight.live = execution.live AND flight.touched_at = execution.touched_at
);
