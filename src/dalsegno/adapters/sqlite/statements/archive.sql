-- Executions and their history, one by one.

-- :name states
-- States of the executions named in a JSON list: polled while a caller waits for them to end.
SELECT id, state
FROM execution
WHERE id IN (SELECT value FROM json_each(?));

-- :name endings
-- Endings of the executions named in a JSON list that have ended. In the order of Ending's fields.
SELECT id, state, output, error
FROM execution
WHERE id IN (SELECT value FROM json_each(?)) AND ended_at IS NOT NULL;

-- :name tagged_up_to
-- How many executions have a tag, counted up to a number.
SELECT count(*)
FROM (SELECT 1 FROM execution_tag WHERE name = ? AND value = ? LIMIT ?);

-- :name newest_events
-- Numbers of the newest events of the executions named in a JSON list: polled while a client follows them.
SELECT execution.id, coalesce(flight.seq, execution.seq, 0)
FROM json_each(?) AS wanted
CROSS JOIN execution ON execution.id = wanted.value
LEFT JOIN flight ON flight.number = execution.number;

-- :name is_told
-- True if the history is complete: no token is left that the sweep has to record.
SELECT ended_at IS NOT NULL AND NOT EXISTS (
    SELECT 1
    FROM token
    WHERE token.execution = execution.number AND token.state <> 'consumed'
)
FROM execution
WHERE id = ?;

-- :name events_of
-- In the order of Event's fields.
SELECT seq, kind, node, scope, at, data, token, arrived, expected
FROM event
WHERE execution = (SELECT number FROM execution WHERE id = ?) AND seq > ?
ORDER BY seq
LIMIT ?;
