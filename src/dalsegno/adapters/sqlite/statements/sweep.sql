-- What remains of executions after their endings is swept in chunks. The tables that hold rows of few executions are
-- swept by the statements of removal.sql.

-- :name ended
-- Executions whose rows are still to be swept, oldest ending first.
SELECT number, id, state, touched_at
FROM flight
WHERE ended_at IS NOT NULL
ORDER BY ended_at
LIMIT ?;

-- :name tokens
-- Tokens of executions in a JSON list of numbers, and whether they are unfinished.
SELECT token.number, state IN ('ready', 'leased', 'parked', 'held')
FROM json_each(?) AS ended
CROSS JOIN token ON token.execution = ended.value
LIMIT ?;

-- :name unfinished
SELECT execution, token.id, kind, node, scope, live
FROM json_each(?) AS wanted
CROSS JOIN token ON token.number = wanted.value;

-- :name delete_tokens
DELETE FROM token
WHERE number IN (SELECT value FROM json_each(?));

-- :name delete_machines
DELETE FROM machine
WHERE execution IN (
    SELECT execution
    FROM json_each(?) AS ended
    CROSS JOIN machine ON machine.execution = ended.value
    LIMIT ?
);

-- :name filled
-- Which of these executions have rows in which tables. Most have none in any.
SELECT 'scope', value
FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM scope WHERE execution = value)
UNION ALL
SELECT 'barrier', value
FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM barrier WHERE execution = value)
UNION ALL
SELECT 'slot', value
FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM slot WHERE execution = value)
UNION ALL
SELECT 'gate', value
FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM gate WHERE execution = value)
UNION ALL
SELECT 'left_context', value
FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM left_context WHERE execution = value)
UNION ALL
SELECT 'inbox', value
FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM inbox WHERE execution = value)
UNION ALL
SELECT 'mailbox', value
FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM mailbox WHERE execution = value);

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
-- The records take over the counters of the flight rows, which are deleted in the same transaction. One that has
-- them already is not written again: SQLite would read and write all of its output for that.
UPDATE execution
SET (epoch, seq, live, touched_at) = (
    SELECT epoch, seq, live, touched_at FROM flight WHERE flight.number = execution.number
)
WHERE number IN (SELECT value FROM json_each(?)) AND NOT EXISTS (
    SELECT 1
    FROM flight
    WHERE flight.number = execution.number AND flight.epoch = execution.epoch AND flight.seq = execution.seq
      AND flight.live = execution.live AND flight.touched_at = execution.touched_at
);

-- :name delete_flight
DELETE FROM flight
WHERE number IN (SELECT value FROM json_each(?));
