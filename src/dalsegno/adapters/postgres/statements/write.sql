-- The writes of a commit. Rows come as parallel arrays, each row once; all of it happens in the transaction that
-- holds the executions' flight rows.

-- :part given_steps
-- Arrays of names and numbers come as text. Columns that many rows share are stored once in `shape`.
given_consumed AS MATERIALIZED (
    SELECT *
    FROM unnest($1::text::bigint[], $2::text::text[], $3::text::integer[], $4::bytea[])
        AS given (execution, id, fence, digest)
), given_token AS MATERIALIZED (
    SELECT nextval('turn') AS turn, given.*
    FROM unnest($5::text::bigint[], $6::text::text[], $7::text::integer[], $8::bytea[])
        AS given (execution, id, shape, data)
), token_shape AS MATERIALIZED (
    SELECT *
    FROM unnest($9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::integer[], $15::boolean[],
                $16::float8[], $17::integer[], $18::text[])
        WITH ORDINALITY AS shape (state, scope, kind, node, queue, priority, live, ready_at, fence, owner, place)
), given_event AS MATERIALIZED (
    SELECT *
    FROM unnest($19::text::bigint[], $20::text::integer[], $21::text::integer[], $22::text::float8[], $23::text::text[],
                $24::bytea[])
        AS given (execution, seq, shape, at, token, data)
), event_shape AS MATERIALIZED (
    SELECT *
    FROM unnest($25::text[], $26::text[], $27::text[], $28::integer[], $29::integer[])
        WITH ORDINALITY AS shape (kind, node, scope, arrived, expected, place)
), given_output AS MATERIALIZED (
    SELECT *
    FROM unnest($30::text::bigint[], $31::text::text[], $32::bytea[]) AS given (execution, id, data)
)

-- :name steps
-- The hot path: tokens that are consumed, tokens that are spawned ready or kept, events, outputs and counters of
-- running executions. Returns how many tokens were consumed: a fence that does not match is a token that another
-- transaction has changed.
-- Consumed tokens stay as tombstones with the digest, by which a repeated commit is recognised. An event fails on
-- a number that exists: the sequence of an execution is counted in its flight row (L8), of which only counters
-- change, so that no index is touched.
-- Rows are written at their places, as in `held_steps`: a token that a claim has changed meanwhile is not written,
-- and counts as changed. (Its fence is compared once more: some versions of PostgreSQL follow a row to its new
-- place.)
WITH
-- :include given_steps
, found AS MATERIALIZED (
    SELECT given.digest, given.fence, token.place
    FROM given_consumed AS given
    CROSS JOIN LATERAL (
        SELECT token.ctid AS place
        FROM token
        WHERE token.execution = given.execution AND token.id = given.id AND token.fence = given.fence
        OFFSET 0
    ) AS token
    LIMIT cardinality($2::text::text[])
), consumed AS (
    UPDATE token
    SET state = 'consumed', owner = NULL, data = '', digest = found.digest
    FROM found
    WHERE token.ctid = found.place AND token.fence = found.fence
    RETURNING 1
), spawned AS (
    INSERT INTO token (number, turn, execution, id, data, state, scope, kind, node, queue, priority, live, ready_at,
                       fence, owner)
    SELECT given.turn, given.turn, given.execution, given.id, given.data, shape.state, shape.scope, shape.kind,
           shape.node, shape.queue, shape.priority, shape.live, shape.ready_at, shape.fence, shape.owner
    FROM given_token AS given
    JOIN token_shape AS shape ON shape.place = given.shape
), recorded AS (
    INSERT INTO event (execution, seq, kind, node, scope, at, token, arrived, expected, data)
    SELECT given.execution, given.seq, shape.kind, shape.node, shape.scope, given.at, given.token, shape.arrived,
           shape.expected, given.data
    FROM given_event AS given
    JOIN event_shape AS shape ON shape.place = given.shape
), stored AS (
    INSERT INTO output (execution, id, data)
    SELECT execution, id, data
    FROM given_output
    ON CONFLICT (execution, id) DO UPDATE SET data = excluded.data
), flying AS MATERIALIZED (
    SELECT given.*, flight.place
    FROM unnest($33::text::bigint[], $34::text::integer[], $35::text::integer[], $36::text::integer[],
                $37::text::float8[])
        AS given (number, epoch, seq, live, touched_at)
    CROSS JOIN LATERAL (
        SELECT flight.ctid AS place FROM flight WHERE flight.number = given.number OFFSET 0
    ) AS flight
    LIMIT cardinality($33::text::bigint[])
), advanced AS (
    UPDATE flight
    SET epoch = flying.epoch, seq = flying.seq, live = flying.live, touched_at = flying.touched_at,
        version = version + 1
    FROM flying
    WHERE flight.ctid = flying.place
)
SELECT count(*) FROM consumed;

-- :part leased_places
-- The places of the given tokens, of the executions that are held. Only this process's memory says that they are
-- leased, so that is checked here. (In a way that fits no index: the planner might walk all leases instead of
-- looking up each token.)
CROSS JOIN LATERAL (
    SELECT token.ctid AS place
    FROM token
    WHERE token.execution = given.execution AND token.id = given.id AND token.fence = given.fence
      AND token.state || '' = 'leased'
    OFFSET 0
) AS token
WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE

-- :part held_additions
-- New rows of the executions that are held.
spawned AS (
    INSERT INTO token (number, turn, execution, id, data, state, scope, kind, node, queue, priority, live, ready_at,
                       fence, owner)
    SELECT given.turn, given.turn, given.execution, given.id, given.data, shape.state, shape.scope, shape.kind,
           shape.node, shape.queue, shape.priority, shape.live, shape.ready_at, shape.fence, shape.owner
    FROM given_token AS given
    JOIN token_shape AS shape ON shape.place = given.shape
    WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE
), recorded AS (
    INSERT INTO event (execution, seq, kind, node, scope, at, token, arrived, expected, data)
    SELECT given.execution, given.seq, shape.kind, shape.node, shape.scope, given.at, given.token, shape.arrived,
           shape.expected, given.data
    FROM given_event AS given
    JOIN event_shape AS shape ON shape.place = given.shape
    WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE
), stored AS (
    INSERT INTO output (execution, id, data)
    SELECT given.execution, given.id, given.data
    FROM given_output AS given
    WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE
    ON CONFLICT (execution, id) DO UPDATE SET data = excluded.data
)

-- :part held_writes
-- The writes of steps, for the executions that are held.
leased AS MATERIALIZED (
    SELECT given.digest, given.fence, token.place
    FROM given_consumed AS given
    -- :include leased_places
    LIMIT cardinality($2::text::text[])
), consumed AS (
    UPDATE token
    SET state = 'consumed', owner = NULL, data = '', digest = leased.digest
    FROM leased
    WHERE token.ctid = leased.place AND token.fence = leased.fence
    RETURNING 1
),
-- :include held_additions

-- :part saved_machines
-- After a run of a script: all columns, including the snapshot.
saved AS (
    INSERT INTO machine (execution, version, inbox, read, unread, last_success, last_failure, kept, resuming, cancel,
                         interrupted, line, wake, reachable, snapshot)
    SELECT *
    FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
                $8::integer[], $9::boolean[], $10::text[], $11::boolean[], $12::integer[], $13::text[], $14::text[],
                $15::bytea[])
        AS given (execution)
    WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE
    ON CONFLICT (execution) DO UPDATE SET
        version = excluded.version, inbox = excluded.inbox, read = excluded.read, unread = excluded.unread,
        last_success = excluded.last_success, last_failure = excluded.last_failure, kept = excluded.kept,
        resuming = excluded.resuming, cancel = excluded.cancel, interrupted = excluded.interrupted,
        line = excluded.line, wake = excluded.wake, reachable = excluded.reachable, snapshot = excluded.snapshot
)

-- :part counted_machines
-- After a completion, a signal or a request.
known_machine AS MATERIALIZED (
    SELECT given.*, machine.place
    FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
                $8::boolean[], $9::text[])
        AS given (execution, version, inbox, unread, last_success, last_failure, kept, resuming, cancel)
    CROSS JOIN LATERAL (
        SELECT machine.ctid AS place FROM machine WHERE machine.execution = given.execution OFFSET 0
    ) AS machine
    WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE
    LIMIT cardinality($1::bigint[])
), counted AS (
    UPDATE machine
    SET version = known.version, inbox = known.inbox, unread = known.unread, last_success = known.last_success,
        last_failure = known.last_failure, kept = known.kept, resuming = known.resuming, cancel = known.cancel
    FROM known_machine AS known
    WHERE machine.ctid = known.place
)

-- :part inboxes
-- New completions, and the removal of those that are no longer reachable.
entered AS (
    INSERT INTO inbox (execution, number, promise, ok, data)
    SELECT *
    FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::boolean[], $5::bytea[]) AS given (execution)
    WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE
), read AS MATERIALIZED (
    SELECT inbox.place
    FROM unnest($6::bigint[], $7::integer[]) AS given (execution, number)
    CROSS JOIN LATERAL (
        SELECT inbox.ctid AS place
        FROM inbox
        WHERE inbox.execution = given.execution AND inbox.number = given.number
        OFFSET 0
    ) AS inbox
    WHERE (given.execution IN (SELECT held.number FROM held)) IS TRUE
    LIMIT cardinality($7::integer[])
), removed AS (
    DELETE FROM inbox
    USING read
    WHERE inbox.ctid = read.place
)

-- :part held_numbers
-- Fails if a token is not in the expected state: fewer were `released` than were `asked` to be.
SELECT held.number, extract(epoch FROM clock_timestamp())::float8,
       1 / CASE
           WHEN (SELECT count(*) FROM released) = (
               SELECT count(*) FROM asked WHERE (asked.execution IN (SELECT held.number FROM held)) IS TRUE
           ) THEN 1
           ELSE 0
       END
FROM held

-- :part unchanged_flight
-- Where the row of a known execution is, if no other transaction has changed it; locks it.
CROSS JOIN LATERAL (
    SELECT flight.ctid AS place
    FROM flight
    WHERE flight.number = known.number AND flight.version = known.version AND flight.touched_at = known.seen_at
    FOR UPDATE SKIP LOCKED
) AS flight

-- :name held_steps
-- The same in one round trip, for executions whose rows this process knows ($38: their versions, $39: when they
-- were touched last, in the order of $33). If both are unchanged no other transaction has changed the execution,
-- and it is locked here while it is written. (A version alone may come twice: a standby that takes over may lack
-- the last commits, and new ones get their numbers.) Returns the numbers of those that were written; the others
-- are left alone whole.
--
-- A plan that was made while these tables were empty serves the load that follows. To the planner a walk over a
-- table of one row is as good as looking up ten, and ten times ten comparisons are nothing. So it gets no choice:
-- rows are looked up one by one (LATERAL), and written at the place where they were found, of which, by a LIMIT
-- that limits nothing, it expects one. (They cannot have moved: every change of an execution's rows increments its
-- version, and it is locked.) `IN (…) IS TRUE` is no join to it, but a lookup in a hash table.
WITH
-- :include given_steps
, held AS MATERIALIZED (
    SELECT known.*, flight.place
    FROM (
        SELECT *
        FROM unnest($33::text::bigint[], $34::text::integer[], $35::text::integer[], $36::text::integer[],
                    $37::text::float8[], $38::text::bigint[], $39::text::float8[])
            AS known (number, epoch, seq, live, touched_at, version, seen_at)
        LIMIT cardinality($33::text::bigint[])
    ) AS known
    -- :include unchanged_flight
),
-- :include held_writes
, advanced AS (
    UPDATE flight
    SET epoch = held.epoch, seq = held.seq, live = held.live, touched_at = held.touched_at,
        version = flight.version + 1
    FROM held
    WHERE flight.ctid = held.place
), released AS (
    SELECT FROM consumed
), asked AS (
    SELECT execution FROM given_consumed
)
-- :include held_numbers
;

-- :part held_stopping
-- The executions that may be written, and their writes.
held AS MATERIALIZED (
    SELECT known.*, flight.place
    FROM (
        SELECT *
        FROM unnest($33::text::bigint[], $34::text::integer[], $35::text::integer[], $36::text::integer[],
                    $37::text::float8[], $38::text::bigint[], $39::text::float8[], $40::text[], $41::float8[], $42::bytea[], $43::bytea[],
                    $44::bytea[])
            AS known (number, epoch, seq, live, touched_at, version, seen_at, state, ended_at, output, context, error)
        -- Looked up one by one: the planner may turn EXISTS into a walk over all there are.
        WHERE known.state IS NULL OR coalesce(
            (SELECT 1 FROM left_context WHERE left_context.execution = known.number AND left_context.scope = '' LIMIT 1),
            (SELECT 1 FROM token AS slot
             WHERE slot.execution = known.number AND slot.state = 'leased' AND slot.limit_key IS NOT NULL LIMIT 1),
            (SELECT 1 FROM slot_holder WHERE slot_holder.execution = known.number LIMIT 1)
        ) IS NULL
        LIMIT cardinality($33::text::bigint[])
    ) AS known
    -- :include unchanged_flight
),
-- :include held_writes
, advanced AS (
    UPDATE flight
    SET epoch = held.epoch, seq = held.seq, live = held.live, touched_at = held.touched_at,
        version = flight.version + 1, state = coalesce(held.state, flight.state), ended_at = held.ended_at
    FROM held
    WHERE flight.ctid = held.place
), ending AS MATERIALIZED (
    SELECT held.*, execution.place AS record
    FROM held
    CROSS JOIN LATERAL (
        SELECT execution.ctid AS place FROM execution WHERE execution.number = held.number OFFSET 0
    ) AS execution
    WHERE held.state IS NOT NULL
), ended AS (
    UPDATE execution
    SET state = ending.state, ended_at = ending.ended_at, output = ending.output, context = ending.context,
        error = ending.error, epoch = ending.epoch, seq = ending.seq, live = ending.live,
        touched_at = ending.touched_at
    FROM ending
    WHERE execution.ctid = ending.record
), given_parked AS MATERIALIZED (
    SELECT *
    FROM unnest($45::text::bigint[], $46::text::text[], $47::text::integer[], $48::float8[], $49::text::integer[],
                $50::bytea[], $51::bytea[])
        AS given (execution, id, fence, due, attempt, digest, data)
), tired AS MATERIALIZED (
    SELECT given.fence, given.due, given.attempt, given.digest, given.data, token.place
    FROM given_parked AS given
    -- :include leased_places
    LIMIT cardinality($46::text::text[])
), parked AS (
    UPDATE token
    SET state = 'parked', owner = NULL, due = tired.due, attempt = tired.attempt, losses = 0, reason = '',
        digest = tired.digest, data = tired.data
    FROM tired
    WHERE token.ctid = tired.place AND token.fence = tired.fence
    RETURNING 1
), released AS (
    SELECT FROM consumed
    UNION ALL
    SELECT FROM parked
), asked AS (
    SELECT execution FROM given_consumed
    UNION ALL
    SELECT execution FROM given_parked
)

-- :name held_stops
-- The same, if some of the executions end ($40 to $44, in the order of $33; no state: it continues) or some of the
-- tokens are parked instead of consumed ($45 to $51). An execution that ends is left alone if anything was left at
-- its root or if it holds slots: then more has to be written.
WITH
-- :include given_steps
,
-- :include held_stopping
-- :include held_numbers
;

-- :name held_runs
-- The same, if some of the executions are scripts whose machines have run, or have new completions.
WITH
-- :include given_steps
,
-- :include held_stopping
,
-- :include saved_machines from $52
,
-- :include counted_machines from $67
,
-- :include inboxes from $76
-- :include held_numbers
;

-- :name starts
-- Starts, with all rows that a start usually has. Returns the numbers of those that were created. The others are
-- left alone whole: an execution of that name exists, or a caller starts it in its own open transaction (see
-- `open_start`), for which the insert would wait. The lock that shows this is only tried and released: so many
-- would fill the server's lock table. In the order of their ids, so that two processes that start the same ones do
-- not deadlock. The wait is limited to $86, or without it by the transaction around it. Those of $87 have a mark: their
-- statuses are published, and none is yet. Until $89 only the process $88 publishes them.
WITH
-- :include given_steps
, held AS (
    INSERT INTO execution (number, id, workflow, version, definition, kind, state, created_at, priority, parent, relation,
                           idempotency_key, paused_at, ended_at, tags, error, context, output, input)
    SELECT given.number, given.id, shape.workflow, shape.version, shape.definition, shape.kind, shape.state,
           given.created_at, shape.priority, shape.parent, shape.relation, given.idempotency_key, shape.paused_at,
           shape.ended_at, shape.tags, given.error, given.context, given.output, given.input
    FROM unnest($33::text::bigint[], $34::text::text[], $35::text::integer[], $36::text::float8[], $37::text::text[],
                $38::bytea[], $39::bytea[], $40::bytea[], $41::bytea[])
        AS given (number, id, shape, created_at, idempotency_key, error, context, output, input)
    JOIN unnest($42::text[], $43::integer[], $44::text[], $45::text[], $46::text[], $47::integer[], $48::text[],
                $49::text[], $50::float8[], $51::float8[], $52::text[])
        WITH ORDINALITY AS shape (workflow, version, definition, kind, state, priority, parent, relation, paused_at,
                                  ended_at, tags, place)
        ON shape.place = given.shape
    WHERE set_config('lock_timeout', coalesce($86, current_setting('lock_timeout')), true) IS NOT NULL
      AND CASE
          WHEN pg_try_advisory_lock_shared(hashtextextended(given.id, 1685286004))
              THEN pg_advisory_unlock_shared(hashtextextended(given.id, 1685286004))
          ELSE false
      END
    ORDER BY given.id
    ON CONFLICT (id) DO NOTHING
    RETURNING number, id
), flying AS (
    INSERT INTO flight (number, id, state, definition, epoch, seq, live, priority, paused_at, touched_at, ended_at, kind,
                        notify)
    SELECT given.number, given.id, shape.state, shape.definition, shape.epoch, shape.seq, shape.live, shape.priority,
           shape.paused_at, shape.touched_at, shape.ended_at, shape.kind, given.notify
    FROM unnest($53::text::bigint[], $54::text::text[], $55::text::integer[], $56::bytea[])
        AS given (number, id, shape, notify)
    JOIN unnest($57::text[], $58::text[], $59::integer[], $60::integer[], $61::integer[], $62::integer[], $63::float8[],
                $64::float8[], $65::float8[], $66::text[])
        WITH ORDINALITY AS shape (state, definition, epoch, seq, live, priority, paused_at, touched_at, ended_at, kind,
                                  place)
        ON shape.place = given.shape
    WHERE (given.number IN (SELECT held.number FROM held)) IS TRUE
),
-- :include saved_machines from $67
, tagged AS (
    INSERT INTO execution_tag (name, value, created_at, execution)
    SELECT *
    FROM unnest($82::text[], $83::text[], $84::float8[], $85::text[]) AS given (name, value, created_at, execution)
    WHERE (given.execution IN (SELECT held.id FROM held)) IS TRUE
    ON CONFLICT DO NOTHING
), marked AS (
    INSERT INTO publication (execution, owner, until)
    SELECT given.*
    FROM unnest($87::text[], $88::text[], $89::float8[]) AS given (execution, owner, until)
    WHERE (given.execution IN (SELECT held.id FROM held)) IS TRUE
    ON CONFLICT DO NOTHING
),
-- :include held_additions
SELECT number, extract(epoch FROM clock_timestamp())::float8
FROM held;

-- :name open_start
-- A caller starts execution $1 in a transaction of its own. Waits for another caller that does the same.
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 1685286004));

-- :name open_starts
-- Those of the executions $1 that are being started this way, until their callers' transactions end.
SELECT asked.id
FROM unnest($1::text[]) AS asked (id)
WHERE NOT CASE
    WHEN pg_try_advisory_lock_shared(hashtextextended(asked.id, 1685286004))
        THEN pg_advisory_unlock_shared(hashtextextended(asked.id, 1685286004))
    ELSE false
END;

-- :name moves
-- A begin, a pause, a resume or the ending: the flight row and the record, which takes the counters with the
-- ending. (They usually do not change after that: the sweep need not write the record again.)
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::float8[], $7::float8[],
                $8::float8[], $9::bytea[], $10::bytea[], $11::bytea[])
        AS given (number, state, epoch, seq, live, touched_at, paused_at, ended_at, output, context, error)
), moved AS (
    UPDATE flight
    SET state = given.state, epoch = given.epoch, seq = given.seq, live = given.live, touched_at = given.touched_at,
        paused_at = given.paused_at, ended_at = given.ended_at, version = flight.version + 1
    FROM given
    WHERE flight.number = given.number
)
UPDATE execution
SET state = given.state, paused_at = given.paused_at, ended_at = given.ended_at, output = given.output,
    context = given.context, error = given.error,
    epoch = CASE WHEN given.ended_at IS NOT NULL THEN given.epoch END,
    seq = CASE WHEN given.ended_at IS NOT NULL THEN given.seq END,
    live = CASE WHEN given.ended_at IS NOT NULL THEN given.live END,
    touched_at = CASE WHEN given.ended_at IS NOT NULL THEN given.touched_at END
FROM given
WHERE execution.number = given.number;

-- :name touch
-- Executions whose rows changed, but not their own one.
UPDATE flight
SET version = version + 1
WHERE number = ANY ($1::bigint[]);

-- :name inputs
-- A trigger may replace the submitted input; the execution has not begun.
UPDATE execution
SET input = given.input
FROM unnest($1::bigint[], $2::bytea[]) AS given (number, input)
WHERE execution.number = given.number;

-- :name versions
-- Scripts go on with other versions of their programs.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest($1::bigint[], $2::integer[], $3::text[]) AS given (number, version, definition)
), moved AS (
    UPDATE flight
    SET definition = given.definition
    FROM given
    WHERE flight.number = given.number
)
UPDATE execution
SET version = given.version, definition = given.definition
FROM given
WHERE execution.number = given.number;

-- :name tags
-- All tags of some executions ($1, $2), and the index rows: removed ones ($3 to $5) and new ones ($6 to $8), by
-- their whole keys. A common tag has as many rows as there are executions.
WITH changed AS (
    UPDATE execution
    SET tags = given.tags
    FROM unnest($1::bigint[], $2::text[]) AS given (number, tags)
    WHERE execution.number = given.number
), gone AS (
    DELETE FROM execution_tag
    USING unnest($3::text[], $4::text[], $5::bigint[]) AS given (name, value, number)
    JOIN execution ON execution.number = given.number
    WHERE execution_tag.name = given.name AND execution_tag.value = given.value
      AND execution_tag.created_at = execution.created_at AND execution_tag.execution = execution.id
)
INSERT INTO execution_tag (name, value, created_at, execution)
SELECT given.name, given.value, execution.created_at, execution.id
FROM unnest($6::text[], $7::text[], $8::bigint[]) AS given (name, value, number)
JOIN execution ON execution.number = given.number
ON CONFLICT DO NOTHING;

-- :name new_tokens
-- New tokens that are parked, held, with a limit key or at a barrier.
INSERT INTO token (number, turn, execution, id, scope, kind, node, data, priority, live, limit_key, allowance, state,
                   due, fence, owner, attempt, losses, reason, barrier, ready_at, digest, awaits, queue)
SELECT born.turn, born.*
FROM (
    SELECT nextval('turn') AS turn, given.*
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::integer[],
                $8::boolean[], $9::text[], $10::text[], $11::text[], $12::float8[], $13::integer[], $14::text[],
                $15::integer[], $16::integer[], $17::text[], $18::text[], $19::float8[], $20::bytea[], $21::text[],
                $22::text[]) AS given
) AS born;

-- :name tokens
-- Returns how many were changed; see `steps`. A ready token gets a new turn. The execution changes only for a task
-- that outlives its script.
WITH found AS MATERIALIZED (
    SELECT given.*, token.place
    FROM (
        SELECT nextval('turn') AS next_turn, rows.*
        FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::bigint[], $5::text[], $6::float8[], $7::integer[],
                    $8::text[], $9::integer[], $10::integer[], $11::text[], $12::text[], $13::float8[], $14::bytea[],
                    $15::text[], $16::text[], $17::bytea[])
            AS rows (execution, id, fence_before, target, state, due, fence, owner, attempt, losses, reason, barrier,
                     ready_at, digest, awaits, queue, data)
    ) AS given
    CROSS JOIN LATERAL (
        SELECT token.ctid AS place
        FROM token
        WHERE token.execution = given.execution AND token.id = given.id AND token.fence = given.fence_before
        OFFSET 0
    ) AS token
    LIMIT cardinality($2::text[])
), changed AS (
    UPDATE token
    SET execution = found.target, state = found.state, due = found.due, fence = found.fence, owner = found.owner,
        attempt = found.attempt, losses = found.losses, reason = found.reason, barrier = found.barrier,
        ready_at = found.ready_at, digest = found.digest, awaits = found.awaits, queue = found.queue,
        data = found.data, turn = CASE WHEN found.state = 'ready' THEN found.next_turn ELSE token.turn END
    FROM found
    WHERE token.ctid = found.place AND token.fence = found.fence_before
    RETURNING 1
)
SELECT count(*) FROM changed;

-- :name joins
-- Where branches meet. New scopes and barriers fail if they exist: that is checked before. A resolved slot does
-- not change (L7).
WITH new_scope AS (
    INSERT INTO scope (execution, path, barrier, slot, live, ended)
    SELECT *
    FROM unnest($1::text::bigint[], $2::text::text[], $3::text::text[], $4::text::integer[], $5::text::integer[],
                $6::text::boolean[])
), known_scope AS MATERIALIZED (
    SELECT given.live, given.ended, scope.place
    FROM unnest($7::text::bigint[], $8::text::text[], $9::text::integer[], $10::text::boolean[])
        AS given (execution, path, live, ended)
    CROSS JOIN LATERAL (
        SELECT scope.ctid AS place
        FROM scope
        WHERE scope.execution = given.execution AND scope.path = given.path
        OFFSET 0
    ) AS scope
    LIMIT cardinality($8::text::text[])
), changed_scope AS (
    UPDATE scope
    SET live = known_scope.live, ended = known_scope.ended
    FROM known_scope
    WHERE scope.ctid = known_scope.place
), new_slot AS (
    INSERT INTO slot (execution, barrier, slot, live, data)
    SELECT *
    FROM unnest($11::text::bigint[], $12::text::text[], $13::text::integer[], $14::text::boolean[], $15::bytea[])
    ON CONFLICT DO NOTHING
), new_barrier AS (
    INSERT INTO barrier (execution, id, scope, node, mode, expected, join_token, state, resolved, live, deadline,
                         milestone_at, milestone_token)
    SELECT *
    FROM unnest($16::bigint[], $17::text[], $18::text[], $19::text[], $20::text[], $21::integer[], $22::text[],
                $23::text[], $24::integer[], $25::integer[], $26::float8[], $27::integer[], $28::text[])
), known_barrier AS MATERIALIZED (
    SELECT given.*, barrier.place
    FROM unnest($29::bigint[], $30::text[], $31::text[], $32::integer[], $33::integer[], $34::float8[], $35::integer[],
                $36::text[])
        AS given (execution, id, state, resolved, live, deadline, milestone_at, milestone_token)
    CROSS JOIN LATERAL (
        SELECT barrier.ctid AS place
        FROM barrier
        WHERE barrier.execution = given.execution AND barrier.id = given.id
        OFFSET 0
    ) AS barrier
    LIMIT cardinality($30::text[])
), changed_barrier AS (
    UPDATE barrier
    SET state = known.state, resolved = known.resolved, live = known.live, deadline = known.deadline,
        milestone_at = known.milestone_at, milestone_token = known.milestone_token
    FROM known_barrier AS known
    WHERE barrier.ctid = known.place
), saved_gate AS (
    INSERT INTO gate (execution, id, count, used)
    SELECT *
    FROM unnest($37::bigint[], $38::text[], $39::integer[], $40::text[])
    ON CONFLICT (execution, id) DO UPDATE SET count = excluded.count, used = excluded.used
)
INSERT INTO left_context (execution, scope, key, data)
SELECT *
FROM unnest($41::bigint[], $42::text[], $43::text[], $44::bytea[])
ON CONFLICT (execution, scope, key) DO UPDATE SET data = excluded.data;

-- :name machines
-- Scripts: the end of a run saves all columns, including the snapshot; a completion, a signal or a request only
-- updates counters. The transaction holds the executions.
WITH held AS MATERIALIZED (
    SELECT unnest($1::bigint[] || $16::bigint[] || $25::bigint[] || $30::bigint[]) AS number
),
-- :include saved_machines
,
-- :include counted_machines from $16
,
-- :include inboxes from $25
INSERT INTO mailbox (execution, id, name, number, place, taken, data)
SELECT *
FROM unnest($32::bigint[], $33::text[], $34::text[], $35::integer[], $36::integer[], $37::boolean[], $38::bytea[])
ON CONFLICT (execution, id) DO UPDATE SET place = excluded.place, taken = excluded.taken, data = excluded.data;

-- :name outbox
-- Idempotent by its derived id.
INSERT INTO outbox (id, execution, topic, data)
SELECT *
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
ON CONFLICT (id) DO NOTHING;

-- :name taken_orders
DELETE FROM outbox
WHERE id = ANY ($1::text[]);

-- :name delivered
-- Several processes may deliver the same entries: the first one removes each.
DELETE FROM outbox
WHERE turn IN (
    SELECT done.turn
    FROM outbox AS done
    WHERE done.id = ANY ($1::text[])
    ORDER BY done.turn
    FOR UPDATE SKIP LOCKED
);
