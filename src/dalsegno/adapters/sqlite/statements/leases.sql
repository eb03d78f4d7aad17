-- Claims and leases: which ready tokens are leased, timers that are due, and the workers that hold leases. A lease is
-- valid as long as its worker's heartbeats are in time. CROSS JOIN fixes the order: from the token to its flight.

-- :part columns
-- The token's number, then the columns in the order of TokenRow, whose execution is an id.
token.number, flight.id, token.id, scope, token.kind, node, data, queue, token.priority, limit_key, token.live,
token.state, due, fence, owner, attempt, losses, reason, barrier, ready_at, digest, awaits, allowance

-- :name ready
-- Ready tokens of one queue without a limit key by priority, then age: reads as many index entries as it returns.
-- The second parameter selects the line: 0 for innocent tokens, 1 for those that killed workers before. The turn
-- comes last.
SELECT
-- :include columns
, turn
FROM token
CROSS JOIN flight ON flight.number = token.execution
WHERE token.state = 'ready' AND limit_key IS NULL AND queue = ? AND (losses >= 3) = ?
ORDER BY token.priority DESC, ready_at, turn
LIMIT ?;

-- :name any_ready
-- A row if one of the queues in a JSON list has a ready token without a limit key, or a line that may move.
SELECT 1
FROM json_each(?) AS wanted
WHERE EXISTS (SELECT 1 FROM token WHERE state = 'ready' AND limit_key IS NULL AND queue = wanted.value)
   OR EXISTS (SELECT 1 FROM line WHERE queue = wanted.value AND shut = 0)
LIMIT 1;

-- :name ready_of_others
-- Ready tokens of one queue without a limit key, by priority, then age, that became ready since :since. Passed
-- over are tokens of executions of the workflows :pass_over (JSON), with :only_long only those that may run long
-- (see may_run_long). Tokens that killed workers before are not included.
SELECT token.id, flight.id, queue, token.priority, ready_at
FROM token
CROSS JOIN flight ON flight.number = token.execution
WHERE token.state = 'ready' AND limit_key IS NULL AND queue = :queue AND (losses >= 3) = 0 AND ready_at >= :since
  AND flight.state IN ('RUNNING', 'PENDING')
  AND NOT (
    (NOT :only_long OR token.kind IN ('node', 'task') OR (token.kind = 'resume' AND flight.kind = 'python' AND NOT EXISTS (
        SELECT 1 FROM machine WHERE machine.execution = token.execution AND cancel <> ''
    )))
    AND (SELECT workflow FROM execution WHERE execution.number = token.execution)
        IN (SELECT value FROM json_each(:pass_over))
)
ORDER BY token.priority DESC, ready_at, turn
LIMIT :limit;

-- :name first_of_others
-- Of each line of a key in one queue that may move, the first such token.
SELECT token.id, flight.id, token.queue, token.priority, token.ready_at
FROM line
JOIN token ON token.number = (
    SELECT first.number
    FROM token AS first
    CROSS JOIN flight ON flight.number = first.execution
    WHERE first.state = 'ready' AND first.queue = line.queue AND first.limit_key = line.key
      AND (first.losses >= 3) = 0 AND flight.state IN ('RUNNING', 'PENDING')
      AND NOT (
        (NOT :only_long OR first.kind IN ('node', 'task') OR (first.kind = 'resume' AND flight.kind = 'python' AND NOT EXISTS (
        SELECT 1 FROM machine WHERE machine.execution = first.execution AND cancel <> ''
    )))
        AND (SELECT workflow FROM execution WHERE execution.number = first.execution)
            IN (SELECT value FROM json_each(:pass_over))
    )
    ORDER BY first.priority DESC, first.ready_at, first.turn
    LIMIT 1
)
JOIN flight ON flight.number = token.execution
WHERE line.queue = :queue AND line.shut = 0
ORDER BY line.priority DESC, line.turn_at, line.turn
LIMIT :limit;

-- :name holds_suspect
SELECT 1
FROM worker
JOIN token ON token.number = worker.suspect
WHERE worker.id = ? AND token.state = 'leased' AND token.owner = worker.id;

-- :name due
-- Parked tokens whose time has come, earliest first.
SELECT
-- :include columns
FROM token
CROSS JOIN flight ON flight.number = token.execution
WHERE token.state = 'parked' AND due IS NOT NULL AND due <= ?
ORDER BY due
LIMIT ?;

-- :name next_due
SELECT due
FROM token
WHERE state = 'parked' AND due IS NOT NULL
ORDER BY due
LIMIT 1;

-- :name leased_by
-- The parameter is a JSON list of workers.
SELECT flight.id, token.id
FROM token
CROSS JOIN flight ON flight.number = token.execution
WHERE token.state = 'leased' AND owner IN (SELECT value FROM json_each(?));

-- :name held_by
-- The leases of one worker, in the order of Lease's fields.
SELECT token.id, flight.id, token.fence, token.scope, token.kind, token.node, token.data, token.queue, token.priority,
       token.attempt, token.losses, token.reason, token.ready_at, flight.definition, flight.epoch, token.live,
       flight.kind
FROM token
JOIN flight ON flight.number = token.execution
WHERE token.state = 'leased' AND token.owner = ? AND flight.ended_at IS NULL;

-- :name validly_leased
-- From a JSON list of [execution, token, fence, [its scopes]]: the tokens whose commit would still be applied.
SELECT flight.id, token.id, token.fence
FROM json_each(?) AS wanted
CROSS JOIN flight ON flight.id = json_extract(wanted.value, '$[0]')
CROSS JOIN token ON token.execution = flight.number AND token.id = json_extract(wanted.value, '$[1]')
WHERE token.state = 'leased' AND token.fence = json_extract(wanted.value, '$[2]') AND flight.ended_at IS NULL
  AND NOT EXISTS (
    SELECT 1
    FROM json_each(wanted.value, '$[3]') AS around
    LEFT JOIN scope ON scope.execution = flight.number AND scope.path = around.value
    LEFT JOIN barrier ON barrier.execution = flight.number AND barrier.id = scope.barrier
    WHERE scope.path IS NULL OR scope.ended OR barrier.state IS NOT 'waiting'
);

-- :name beat
INSERT INTO worker (id, expires_at, info)
VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET expires_at = excluded.expires_at, info = excluded.info;

-- :name register
-- A worker that was given a lease before its first heartbeat.
INSERT INTO worker (id, expires_at, info)
VALUES (?, NULL, x'')
ON CONFLICT DO NOTHING;

-- :name suspect
-- Records the suspicious token a worker was given: it gets no second one meanwhile.
UPDATE worker
SET suspect = ?
WHERE id = ?;

-- :name gone
-- A worker that holds leases and never sent a heartbeat counts as gone.
SELECT id
FROM worker
WHERE expires_at IS NULL OR expires_at < ?;

-- :name forget
DELETE FROM worker
WHERE id = ?;

-- :name workers
SELECT worker.id, expires_at, (SELECT count(*) FROM token WHERE state = 'leased' AND owner = worker.id), info
FROM worker
WHERE expires_at IS NOT NULL
ORDER BY worker.id;

-- :name known_workers
SELECT id FROM worker WHERE expires_at IS NOT NULL ORDER BY id;
