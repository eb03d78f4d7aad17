-- Reading. Nothing here locks or changes anything.

-- :name now
SELECT ds_now(NULL);

-- :name next_due
SELECT min(due) FROM token WHERE state = 'parked' AND due IS NOT NULL;

-- :name slots
SELECT slot, live, data FROM slot WHERE execution = $1 AND barrier = $2 AND slot > $3 ORDER BY slot LIMIT $4;

-- :name left
SELECT key, data FROM left_context WHERE execution = $1 AND scope = $2 ORDER BY key;

-- :name gate_used
SELECT ARRAY(SELECT DISTINCT position FROM unnest(used) AS position ORDER BY position)
FROM gate WHERE execution = $1 AND id = $2;

-- :name outputs
SELECT id, data FROM output WHERE execution = $1 AND id = ANY ($2::text[]);

-- :name execution
-- In the order of ExecutionView's fields, but for the tags: names, then values.
SELECT * FROM execution_view WHERE id = $1;

-- :name tokens
-- What is unfinished, in the order of TokenView's fields.
SELECT id, scope, kind, node, state, queue, priority, limit_key, live, attempt, losses, reason, due, owner, fence, data
FROM token WHERE execution = $1 AND state IN ('ready', 'leased', 'parked', 'held');

-- :name barriers
-- In the order of BarrierView's fields.
SELECT id, scope, node, state, mode, expected, resolved, live, deadline FROM barrier WHERE execution = $1;

-- :name ready
SELECT id, execution, queue, priority FROM token WHERE execution = $1 AND state = 'ready';

-- :name outbox
-- Oldest first, in the order of OutboxEntry's fields.
SELECT id, execution, topic, data FROM outbox ORDER BY turn LIMIT $1;

-- :name events
-- In the order of Event's fields.
SELECT execution, seq, kind, node, scope, at, data, token, arrived, expected
FROM event WHERE execution = $1 AND seq > $2 ORDER BY seq LIMIT $3;
