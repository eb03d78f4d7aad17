-- The rows that a commit needs. Everything here runs in the transaction that holds the executions' flight rows, so
-- the rows it reads do not change; except ready tokens, which claims may lease meanwhile (the fence shows it).
-- Keys come as parallel arrays, as text if there may be many. Rows that are not found are missing from the result.
--
-- A plan may be made while a table is empty, and is kept. Then half a key looks as good as the whole one, and a
-- row would be searched among all of its execution, or a subquery read for all executions at once. Where the
-- planner has that choice a subquery of its own (`OFFSET 0`, `LIMIT 1`) removes it.

-- :part token_columns
token.execution, token.id, token.scope, token.kind, token.node, token.data, token.queue, token.priority,
token.limit_key, token.live, token.state, token.due, token.fence, token.owner, token.attempt, token.losses,
token.reason, token.barrier, token.ready_at, token.digest, token.awaits, token.allowance, token.number

-- :name locked
-- Locks the executions $1 (ids) that no other transaction holds, in the order of their numbers, and reads of each
-- its row and the tokens $3 (positions in $1) and $4 (ids). $2: it may end here; then also if anything was left at
-- its root, and the limit keys of which it holds slots.
--
-- The rows of flight are read as of the lock, all others as of the statement's beginning. If another commit came
-- between, the versions differ (`moved`): those others are to be read again.
WITH seen AS MATERIALIZED (
    SELECT asked.place, asked.ends, flight.number, flight.id, flight.version
    FROM unnest($1::text::text[], $2::text::boolean[]) WITH ORDINALITY AS asked (id, ends, place)
    CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.id = asked.id OFFSET 0) AS flight
), locked AS MATERIALIZED (
    SELECT flight.*
    FROM flight
    WHERE flight.number = ANY (ARRAY(SELECT seen.number FROM seen))
    ORDER BY flight.number
    FOR UPDATE SKIP LOCKED
)
SELECT seen.number, seen.id, locked.state, locked.definition, locked.epoch, locked.seq, locked.live, locked.priority,
       locked.paused_at, locked.touched_at, locked.ended_at, locked.kind, locked.notify,
       locked.version, locked.version <> seen.version AS moved,
       CASE WHEN seen.ends THEN (
           SELECT true FROM left_context WHERE left_context.execution = seen.number AND left_context.scope = '' LIMIT 1
       ) IS TRUE END AS has_left,
       CASE WHEN seen.ends THEN ARRAY(
           SELECT held.limit_key
           FROM token AS held
           WHERE held.execution = seen.number AND held.state = 'leased' AND held.limit_key IS NOT NULL
           UNION
           SELECT slot_holder.key FROM slot_holder WHERE slot_holder.execution = seen.number
       ) END AS keys,
       extract(epoch FROM clock_timestamp())::float8 AS now,
       -- :include token_columns
FROM seen
LEFT JOIN locked ON locked.number = seen.number
LEFT JOIN unnest($3::text::integer[], $4::text::text[]) AS wanted (place, token) ON wanted.place = seen.place
LEFT JOIN LATERAL (
    SELECT * FROM token WHERE token.execution = seen.number AND token.id = wanted.token OFFSET 0
) AS token ON true;

-- :name wait
-- The same lock, waiting for its holder.
SELECT 1
FROM flight
WHERE flight.id = ANY ($1::text[])
ORDER BY flight.number
FOR UPDATE;

-- :name records
-- Executions without a flight row: swept, or just created by another transaction (those have not ended).
SELECT number, id, state, definition, coalesce(epoch, 0), coalesce(seq, 0), coalesce(live, 0), priority, paused_at,
       coalesce(touched_at, 0), ended_at, kind
FROM execution
WHERE id = ANY ($1::text[]);

-- :name tokens
SELECT
       -- :include token_columns
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, id)
CROSS JOIN LATERAL (SELECT * FROM token WHERE token.execution = wanted.execution AND token.id = wanted.id OFFSET 0) AS token;

-- :name unfinished
SELECT
       -- :include token_columns
FROM token
WHERE token.execution = ANY ($1::bigint[]) AND token.state IN ('ready', 'leased', 'parked', 'held');

-- :name awaiting
SELECT
       -- :include token_columns
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, awaits)
CROSS JOIN LATERAL (
    SELECT *
    FROM token
    WHERE token.execution = wanted.execution AND token.awaits = wanted.awaits AND token.state = 'parked'
    OFFSET 0
) AS token;

-- :name scopes
-- With the barrier each of them feeds, and if anything was left in it.
SELECT scope.execution, scope.path, scope.barrier, scope.slot, scope.live, scope.ended,
       (
           SELECT true
           FROM left_context
           WHERE left_context.execution = scope.execution AND left_context.scope = scope.path
           LIMIT 1
       ) IS TRUE,
       barrier.id, barrier.scope, barrier.node, barrier.mode, barrier.expected, barrier.join_token, barrier.state,
       barrier.resolved, barrier.live, barrier.deadline, barrier.milestone_at, barrier.milestone_token
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, path)
CROSS JOIN LATERAL (SELECT * FROM scope WHERE scope.execution = wanted.execution AND scope.path = wanted.path OFFSET 0) AS scope
LEFT JOIN LATERAL (
    SELECT * FROM barrier WHERE barrier.execution = scope.execution AND barrier.id = scope.barrier OFFSET 0
) AS barrier ON true;

-- :name barriers
SELECT barrier.execution, barrier.id, barrier.scope, barrier.node, barrier.mode, barrier.expected, barrier.join_token,
       barrier.state, barrier.resolved, barrier.live, barrier.deadline, barrier.milestone_at, barrier.milestone_token
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, id)
CROSS JOIN LATERAL (SELECT * FROM barrier WHERE barrier.execution = wanted.execution AND barrier.id = wanted.id OFFSET 0) AS barrier;

-- :name gates
SELECT gate.execution, gate.id, gate.count, gate.used
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, id)
CROSS JOIN LATERAL (SELECT * FROM gate WHERE gate.execution = wanted.execution AND gate.id = wanted.id OFFSET 0) AS gate;

-- :name slots
SELECT slot.execution, slot.barrier, slot.slot
FROM unnest($1::text::bigint[], $2::text::text[], $3::text::integer[]) AS wanted (execution, barrier, slot)
CROSS JOIN LATERAL (
    SELECT *
    FROM slot
    WHERE slot.execution = wanted.execution AND slot.barrier = wanted.barrier AND slot.slot = wanted.slot
    OFFSET 0
) AS slot;

-- :name left
-- The scopes in which something was left.
SELECT wanted.execution, wanted.scope
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, scope)
WHERE (
    SELECT true
    FROM left_context
    WHERE left_context.execution = wanted.execution AND left_context.scope = wanted.scope
    LIMIT 1
);

-- :name machines
-- Without their snapshots: the rules only ever replace them. The inbox comes along as three arrays.
SELECT machine.execution, version, reachable, wake, inbox, read, line, cancel, interrupted, resuming, unread,
       last_success, last_failure, kept, box.promises, box.numbers, box.oks
FROM unnest($1::bigint[]) AS wanted (execution)
CROSS JOIN LATERAL (SELECT * FROM machine WHERE machine.execution = wanted.execution OFFSET 0) AS machine
CROSS JOIN LATERAL (
    SELECT array_agg(inbox.promise) AS promises, array_agg(inbox.number) AS numbers, array_agg(inbox.ok) AS oks
    FROM inbox
    WHERE inbox.execution = machine.execution AND machine.kept > 0
) AS box;

-- :name signals
SELECT mailbox.execution, mailbox.id, name, data, number, place, taken
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, id)
CROSS JOIN LATERAL (SELECT * FROM mailbox WHERE mailbox.execution = wanted.execution AND mailbox.id = wanted.id OFFSET 0) AS mailbox;

-- :name orders
SELECT id
FROM outbox
WHERE id = ANY ($1::text[]);

-- :name waiting_signals
-- Signals of these names that are not taken.
SELECT mailbox.execution, mailbox.id, mailbox.name, data, number, place, taken
FROM unnest($1::text::bigint[], $2::text::text[]) AS wanted (execution, name)
CROSS JOIN LATERAL (
    SELECT *
    FROM mailbox
    WHERE mailbox.execution = wanted.execution AND mailbox.name = wanted.name AND NOT mailbox.taken
    OFFSET 0
) AS mailbox;

-- :name held_keys
-- The limit keys of which these executions hold slots.
SELECT held.execution, held.limit_key
FROM token AS held
WHERE held.execution = ANY ($1::bigint[]) AND held.state = 'leased' AND held.limit_key IS NOT NULL
UNION
SELECT slot_holder.execution, slot_holder.key
FROM slot_holder
WHERE slot_holder.execution = ANY ($1::bigint[]);

-- :name first_in_lines
-- The lines of these keys, and the first token in each.
SELECT line.key, token.id, flight.id, line.queue, token.priority, token.node
FROM line
CROSS JOIN LATERAL (
    SELECT first.id, first.execution, first.priority, first.node
    FROM token AS first
    WHERE first.state = 'ready' AND first.queue = line.queue AND first.limit_key = line.key
      AND (CASE WHEN first.losses >= 3 THEN 1 ELSE 0 END) = 0
    ORDER BY first.priority DESC, first.ready_at, first.turn
    LIMIT 1
) AS token
JOIN flight ON flight.number = token.execution
WHERE line.key = ANY ($1::text[]);
