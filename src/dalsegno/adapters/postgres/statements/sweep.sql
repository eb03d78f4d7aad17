-- Removal of rows of ended executions in chunks. Several processes share it: each works on executions that it has
-- locked. Every DELETE takes the executions' numbers and the most rows it may remove, and returns how many it
-- removed.

-- :name any
-- True if there is anything to sweep.
SELECT 1
FROM flight
WHERE ended_at IS NOT NULL
LIMIT 1;

-- :name ended
-- Locks executions whose rows are still to be swept, oldest ending first.
SELECT number, id, state, seq, touched_at
FROM flight
WHERE ended_at IS NOT NULL
ORDER BY ended_at
LIMIT $1
FOR UPDATE SKIP LOCKED;

-- :name tokens
-- Waits for claims that hold some of them, and so returns which are leased in the end.
DELETE FROM token
WHERE (execution, id) IN (
    SELECT found.execution, found.id FROM token AS found WHERE found.execution = ANY ($1::bigint[]) LIMIT $2
)
RETURNING execution, id, state, kind, node, scope, live, limit_key;

-- :name events
-- Events that the sweep adds continue the sequence.
WITH recorded AS (
    INSERT INTO event (execution, seq, kind, node, scope, at, token)
    SELECT *
    FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[])
)
UPDATE flight
SET seq = given.seq
FROM (
    SELECT number, max(seq) AS seq FROM unnest($1::bigint[], $2::integer[]) AS rows (number, seq) GROUP BY number
) AS given
WHERE flight.number = given.number;

-- :name present
-- Which tables hold rows of these executions besides their tokens; most executions have none.
SELECT EXISTS (SELECT 1 FROM scope WHERE scope.execution = ANY ($1::bigint[])) AS scope,
       EXISTS (SELECT 1 FROM barrier WHERE barrier.execution = ANY ($1::bigint[])) AS barrier,
       EXISTS (SELECT 1 FROM slot WHERE slot.execution = ANY ($1::bigint[])) AS slot,
       EXISTS (SELECT 1 FROM gate WHERE gate.execution = ANY ($1::bigint[])) AS gate,
       EXISTS (SELECT 1 FROM left_context WHERE left_context.execution = ANY ($1::bigint[])) AS left_context,
       EXISTS (SELECT 1 FROM inbox WHERE inbox.execution = ANY ($1::bigint[])) AS inbox,
       EXISTS (SELECT 1 FROM mailbox WHERE mailbox.execution = ANY ($1::bigint[])) AS mailbox,
       EXISTS (SELECT 1 FROM machine WHERE machine.execution = ANY ($1::bigint[])) AS machine;

-- :name delete_scope
DELETE FROM scope
WHERE (execution, path) IN (
    SELECT found.execution, found.path FROM scope AS found WHERE found.execution = ANY ($1::bigint[]) LIMIT $2
)
RETURNING 1;

-- :name delete_barrier
DELETE FROM barrier
WHERE (execution, id) IN (
    SELECT found.execution, found.id FROM barrier AS found WHERE found.execution = ANY ($1::bigint[]) LIMIT $2
)
RETURNING 1;

-- :name delete_slot
DELETE FROM slot
WHERE (execution, barrier, slot) IN (
    SELECT found.execution, found.barrier, found.slot
    FROM slot AS found
    WHERE found.execution = ANY ($1::bigint[])
    LIMIT $2
)
RETURNING 1;

-- :name delete_gate
DELETE FROM gate
WHERE (execution, id) IN (
    SELECT found.execution, found.id FROM gate AS found WHERE found.execution = ANY ($1::bigint[]) LIMIT $2
)
RETURNING 1;

-- :name delete_left_context
-- What branches left at the root stays, unless the execution completed: it is part of the final context.
DELETE FROM left_context
WHERE (execution, scope, key) IN (
    SELECT found.execution, found.scope, found.key
    FROM left_context AS found
    JOIN flight ON flight.number = found.execution
    WHERE found.execution = ANY ($1::bigint[]) AND (found.scope <> '' OR flight.state = 'COMPLETED')
    LIMIT $2
)
RETURNING 1;

-- :name delete_inbox
DELETE FROM inbox
WHERE (execution, number) IN (
    SELECT found.execution, found.number FROM inbox AS found WHERE found.execution = ANY ($1::bigint[]) LIMIT $2
)
RETURNING 1;

-- :name delete_mailbox
DELETE FROM mailbox
WHERE (execution, id) IN (
    SELECT found.execution, found.id FROM mailbox AS found WHERE found.execution = ANY ($1::bigint[]) LIMIT $2
)
RETURNING 1;

-- :name delete_machine
DELETE FROM machine
WHERE execution IN (SELECT found.execution FROM machine AS found WHERE found.execution = ANY ($1::bigint[]) LIMIT $2)
RETURNING 1;

-- :name failures
-- The errors of executions.
SELECT created_at, id, error
FROM execution
WHERE number = ANY ($1::bigint[]);

-- :name insert_words
INSERT INTO failure_word (word, created_at, execution)
SELECT *
FROM unnest($1::text[], $2::float8[], $3::text[])
ON CONFLICT DO NOTHING;

-- :name land
-- The record takes over the counters of the flight row, which is deleted in the same transaction, unless it has
-- them since the ending: each of its versions costs an entry in all its indexes.
WITH landed AS (
    DELETE FROM flight
    WHERE number = ANY ($1::bigint[])
    RETURNING number, epoch, seq, live, touched_at
)
UPDATE execution
SET epoch = landed.epoch, seq = landed.seq, live = landed.live, touched_at = landed.touched_at
FROM landed
WHERE execution.number = landed.number
  AND (execution.epoch, execution.seq, execution.live, execution.touched_at)
      IS DISTINCT FROM (landed.epoch, landed.seq, landed.live, landed.touched_at);
