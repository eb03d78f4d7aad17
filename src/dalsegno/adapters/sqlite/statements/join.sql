-- Where branches meet: scopes, barriers with their slots, gates, and the contexts that branches left. The writer
-- knows an execution's number; readers (`…_of`) pass its id.

-- :name scope
SELECT barrier, slot, live, ended
FROM scope
WHERE execution = ? AND path = ?;

-- :name save_scope
INSERT INTO scope (execution, path, barrier, slot, live, ended)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET live = excluded.live, ended = excluded.ended;

-- :name barrier
-- Columns in the order of BarrierRow, without the execution.
SELECT id, scope, node, mode, expected, join_token, state, resolved, live, deadline, milestone_at,
       milestone_token
FROM barrier
WHERE execution = ? AND id = ?;

-- :name barriers_of
SELECT id, scope, node, mode, expected, join_token, state, resolved, live, deadline, milestone_at,
       milestone_token
FROM barrier
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?);

-- :name visit_of
-- The first of the barriers between two ids; one that still waits comes before the others.
SELECT id, scope, node, mode, expected, join_token, state, resolved, live, deadline, milestone_at,
       milestone_token
FROM barrier
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?) AND id > ? AND id < ?
ORDER BY state != 'waiting', id
LIMIT 1;

-- :name save_barrier
INSERT INTO barrier (execution, id, scope, node, mode, expected, join_token, state, resolved, live, deadline,
                     milestone_at, milestone_token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET state = excluded.state, resolved = excluded.resolved, live = excluded.live,
    deadline = excluded.deadline, milestone_at = excluded.milestone_at, milestone_token = excluded.milestone_token;

-- :name has_slot
SELECT 1
FROM slot
WHERE execution = ? AND barrier = ? AND slot = ?;

-- :name slots_of
SELECT slot, live, data
FROM slot
WHERE execution = (SELECT number FROM flight WHERE id = ?) AND barrier = ? AND slot > ?
ORDER BY slot
LIMIT ?;

-- :name resolved_of
SELECT slot
FROM slot
WHERE execution = (SELECT number FROM flight WHERE id = ?) AND barrier = ?
ORDER BY slot;

-- :name save_slot
-- A resolved slot does not change (L7).
INSERT INTO slot (execution, barrier, slot, live, data)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- :name gate
SELECT count, used
FROM gate
WHERE execution = ? AND id = ?;

-- :name gate_of
SELECT used
FROM gate
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?) AND id = ?;

-- :name save_gate
INSERT INTO gate (execution, id, count, used)
VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = excluded.count, used = excluded.used;

-- :name has_left
SELECT 1
FROM left_context
WHERE execution = ? AND scope = ?
LIMIT 1;

-- :name left_of
SELECT key, data
FROM left_context
WHERE execution = (SELECT number FROM execution WHERE id = ?) AND scope = ?
ORDER BY key;

-- :name save_left
INSERT INTO left_context (execution, scope, key, data)
VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET data = excluded.data;
