-- Executions and their history, one by one.

-- :name one
-- In the order of ExecutionView's fields.
SELECT *
FROM execution_view
WHERE id = $1;

-- :name states
-- Polled while a caller waits for them to end.
SELECT id, state
FROM execution
WHERE id = ANY ($1::text[]);

-- :name endings
-- In the order of Ending's fields.
SELECT id, state, output, error
FROM execution
WHERE id = ANY ($1::text[]) AND ended_at IS NOT NULL;

-- :name tagged_up_to
-- How many executions have a tag, counted up to a number.
SELECT count(*)
FROM (SELECT 1 FROM execution_tag WHERE name = $1 AND value = $2 LIMIT $3) AS found;

-- :name newest_events
-- Numbers of the newest events: polled while a client follows the execution.
SELECT execution.id, coalesce(flight.seq, execution.seq, 0)
FROM execution
LEFT JOIN flight ON flight.number = execution.number
WHERE execution.id = ANY ($1::text[]);

-- :name is_told
-- True if the history is complete: no token is left that the sweep has to record.
SELECT ended_at IS NOT NULL AND NOT EXISTS (
    SELECT 1
    FROM token
    WHERE token.execution = execution.number AND token.state <> 'consumed'
)
FROM execution
WHERE id = $1;

-- :name events_of
-- In the order of Event's fields. All events of an execution are in one partition; the others are not read.
SELECT event.seq, event.kind, node, scope, at, data, token, arrived, expected
FROM event
WHERE execution = (SELECT number FROM execution WHERE id = $1) AND event.seq > $2
ORDER BY event.seq
LIMIT $3;
