-- Claims, leases and timers. Claims lock tokens that no other transaction holds, and never wait for anything
-- afterwards. A change of more than a token's lease (an event, a barrier, another state) is made under the
-- execution's lock instead.

-- :part token_columns
token.execution, token.id, token.scope, token.kind, token.node, token.data, token.queue, token.priority,
token.limit_key, token.live, token.state, token.due, token.fence, token.owner, token.attempt, token.losses,
token.reason, token.barrier, token.ready_at, token.digest, token.awaits, token.allowance, token.number

-- :part flight_columns
flight.number, flight.id, flight.state, flight.definition, flight.epoch, flight.seq, flight.live, flight.priority,
flight.paused_at, flight.touched_at, flight.ended_at, flight.kind, flight.notify, flight.version, false AS moved,
NULL AS has_left, NULL AS keys, extract(epoch FROM clock_timestamp())::float8 AS now

-- :part lease_columns
-- In the order of Lease's fields, as of the new lease.
judged.id, judged.run, judged.fence + 1, judged.scope, judged.kind, judged.node, judged.data, judged.queue,
judged.priority, judged.attempt, judged.losses, judged.reason, judged.ready_at, judged.definition, judged.epoch,
judged.live, judged.run_kind

-- :part run_columns
-- Columns of the token's execution that its commit needs.
judged.execution, judged.run_state, judged.run_seq, judged.run_live, judged.run_priority, judged.run_touched_at,
judged.run_notify, judged.run_version

-- :part run_of
flight.id AS run, flight.kind AS run_kind, flight.definition, flight.epoch, flight.state AS run_state,
flight.seq AS run_seq, flight.live AS run_live, flight.priority AS run_priority, flight.touched_at AS run_touched_at,
flight.notify AS run_notify, flight.version AS run_version

-- :part in_open_scopes
-- True if a candidate's scope, all scopes around it and the barriers they feed are open.
(candidate.scope = '' OR NOT EXISTS (
    SELECT 1
    FROM generate_series(1, array_length(string_to_array(candidate.scope, '/'), 1)) AS depth
    CROSS JOIN LATERAL (
        SELECT array_to_string((string_to_array(candidate.scope, '/'))[1:depth], '/') AS path
    ) AS around
    LEFT JOIN LATERAL (
        SELECT * FROM scope WHERE scope.execution = candidate.execution AND scope.path = around.path OFFSET 0
    ) AS scope ON true
    LEFT JOIN LATERAL (
        -- By its whole key, also if the plan is made while there are no barriers (see load.sql).
        SELECT barrier.state FROM barrier WHERE barrier.execution = scope.execution AND barrier.id = scope.barrier OFFSET 0
    ) AS barrier ON true
    WHERE around.path <> '' AND (scope.path IS NULL OR scope.ended OR barrier.state IS DISTINCT FROM 'waiting')
))

-- :part may_run
-- True if a candidate's execution runs, and its scopes are open.
flight.state IN ('RUNNING', 'PENDING') AND
-- :include in_open_scopes
AS runs

-- :part in_line
-- The next ready tokens without a limit key, and if they may run. Empty if `limited` is true.
innocent AS MATERIALIZED (
    SELECT found.*
    FROM unnest($2::text[]) AS wanted (queue)
    CROSS JOIN LATERAL (
        SELECT token.*, token.ctid AS place
        FROM token
        WHERE token.state = 'ready' AND token.limit_key IS NULL AND token.queue = wanted.queue
          AND (CASE WHEN token.losses >= 3 THEN 1 ELSE 0 END) = 0
        ORDER BY token.priority DESC, token.ready_at, token.turn
        LIMIT $3
        FOR UPDATE SKIP LOCKED
    ) AS found
    WHERE NOT (SELECT yes FROM limited)
), suspect AS MATERIALIZED (
    SELECT found.*
    FROM unnest($2::text[]) AS wanted (queue)
    CROSS JOIN LATERAL (
        SELECT token.*, token.ctid AS place
        FROM token
        WHERE token.state = 'ready' AND token.limit_key IS NULL AND token.queue = wanted.queue
          AND (CASE WHEN token.losses >= 3 THEN 1 ELSE 0 END) = 1
        ORDER BY token.priority DESC, token.ready_at, token.turn
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS found
    WHERE NOT (SELECT yes FROM limited)
      AND NOT EXISTS (SELECT 1 FROM token AS held WHERE held.state = 'leased' AND held.losses >= 3 AND held.owner = $1)
    ORDER BY found.priority DESC, found.ready_at, found.turn
    LIMIT 1
), judged AS MATERIALIZED (
    SELECT candidate.*,
           -- :include run_of
           ,
           -- :include may_run
    FROM (
        SELECT * FROM innocent
        UNION ALL
        SELECT * FROM suspect
        ORDER BY priority DESC, ready_at, turn
        LIMIT $3
    ) AS candidate
    CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.number = candidate.execution OFFSET 0) AS flight
)

-- :part was_given
-- True if a candidate may run. NULL for one that was changed just before it was locked: at its new place it is not
-- visible yet, and was not written. (Rows are written at their places for the reason that `write.held_steps`
-- gives.)
CASE WHEN judged.runs
    THEN nullif(((judged.execution, judged.id) IN (SELECT given.execution, given.id FROM given)) IS TRUE, false)
    ELSE judged.runs
END

-- :name claim
-- Leases ready tokens without a limit key of the queues $2 to worker $1, by priority, then age, at most $3; among
-- them at most one that killed workers before, and none while the worker holds such a one. Reads as many index
-- entries as it returns. First column: lines of limit keys may move ($4: now); then nothing is leased here. `runs`
-- is false for tokens that may not run: they are to be moved where claims do not find them.
WITH limited AS MATERIALIZED (
    SELECT EXISTS (
        SELECT 1 FROM line WHERE queue = ANY ($2::text[]) AND NOT shut
    ) OR EXISTS (
        SELECT 1
        FROM line
        WHERE opens_at <= coalesce($4::float8, extract(epoch FROM statement_timestamp())::float8)
          AND queue = ANY ($2::text[])
    ) AS yes
),
-- :include in_line
, given AS (
    UPDATE token
    SET state = 'leased', owner = $1, fence = token.fence + 1
    FROM judged
    WHERE token.ctid = judged.place AND judged.runs
    RETURNING token.execution, token.id
)
SELECT limited.yes,
       -- :include was_given
       ,
       -- :include lease_columns
       ,
       -- :include run_columns
FROM limited
LEFT JOIN judged ON true
ORDER BY judged.priority DESC, judged.ready_at, judged.turn;

-- :part judged_candidates
-- Locked tokens with their executions, and if they may run.
SELECT candidate.*,
       -- :include run_of
       ,
       -- :include may_run
FROM candidate
CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.number = candidate.execution OFFSET 0) AS flight

-- :part candidate_columns
-- The lease, the number of the execution, the turn, the allowance and if it may run.
-- :include lease_columns
, judged.execution, judged.turn, judged.allowance, judged.runs

-- :name plain
-- The same tokens for a claim in which limits matter: locked and checked, but not leased. After the lease come the
-- number of the execution, the turn, the allowance and if it may run.
WITH limited AS (
    SELECT false AS yes
),
-- :include in_line
SELECT
       -- :include candidate_columns
FROM judged
ORDER BY judged.priority DESC, judged.ready_at, judged.turn;

-- :name heads
-- The first tokens in lines ($1 queues, $2 keys), of each $3 innocent ones and one that killed workers before.
-- Columns as for `plain`, then the position of the line.
WITH candidate AS MATERIALIZED (
    SELECT found.*, wanted.place
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (queue, key, place)
    CROSS JOIN unnest(ARRAY[0, 1], ARRAY[$3::integer, 1]) AS part (suspect, most)
    CROSS JOIN LATERAL (
        SELECT token.*
        FROM token
        WHERE token.state = 'ready' AND token.limit_key IS NOT NULL AND token.queue = wanted.queue
          AND token.limit_key = wanted.key AND (CASE WHEN token.losses >= 3 THEN 1 ELSE 0 END) = part.suspect
        ORDER BY token.priority DESC, token.ready_at, token.turn
        LIMIT part.most
        FOR UPDATE SKIP LOCKED
    ) AS found
), judged AS MATERIALIZED (
    -- :include judged_candidates
)
SELECT
       -- :include candidate_columns
       , judged.place
FROM judged
ORDER BY judged.place, judged.priority DESC, judged.ready_at, judged.turn;

-- :part of_others
-- A ready token that $3 does not pass over; with $5 only what may run long is: see may_run_long.
token.state = 'ready' AND (CASE WHEN token.losses >= 3 THEN 1 ELSE 0 END) = 0
AND NOT (
    (NOT $5::boolean OR token.kind IN ('node', 'task', 'resume')) AND EXISTS (
        SELECT 1
        FROM execution
        WHERE execution.number = token.execution AND execution.workflow = ANY ($3::text[])
          AND (NOT $5::boolean OR token.kind <> 'resume' OR execution.kind = 'python' AND NOT EXISTS (
              SELECT 1 FROM machine WHERE machine.execution = token.execution AND machine.cancel <> ''
          ))
    )
)

-- :name ready_of_others
-- Ready tokens of the queues $1 without a limit key, of each the first $2 by priority, then age, that became ready
-- since $4. Passed over are tokens of executions of the workflows $3 (with $5 only what may run long), and tokens
-- that killed workers before. Then, of each line of a key that may move, the first such token. The last column
-- distinguishes them.
SELECT found.id, flight.id, found.queue, found.priority, found.ready_at, false
FROM unnest($1::text[]) AS wanted (queue)
CROSS JOIN LATERAL (
    SELECT token.id, token.execution, token.queue, token.priority, token.ready_at
    FROM token
    WHERE token.limit_key IS NULL AND token.queue = wanted.queue AND token.ready_at >= $4::float8 AND
    -- :include of_others
    ORDER BY token.priority DESC, token.ready_at, token.turn
    LIMIT $2
) AS found
JOIN flight ON flight.number = found.execution
WHERE flight.state IN ('RUNNING', 'PENDING')
UNION ALL
SELECT found.id, flight.id, found.queue, found.priority, found.ready_at, true
FROM unnest($1::text[]) AS wanted (queue)
CROSS JOIN LATERAL (
    SELECT first.*
    FROM line
    CROSS JOIN LATERAL (
        SELECT token.id, token.execution, token.queue, token.priority, token.ready_at
        FROM token
        WHERE token.limit_key = line.key AND token.queue = line.queue AND
        -- :include of_others
        ORDER BY token.priority DESC, token.ready_at, token.turn
        LIMIT 1
    ) AS first
    WHERE line.queue = wanted.queue AND NOT line.shut
    ORDER BY line.priority DESC, line.turn_at, line.turn
    LIMIT $2
) AS found
JOIN flight ON flight.number = found.execution
WHERE flight.state IN ('RUNNING', 'PENDING');

-- :name held_by
-- The leases of worker $1, in the order of Lease's fields.
SELECT token.id, flight.id, token.fence, token.scope, token.kind, token.node, token.data, token.queue, token.priority,
       token.attempt, token.losses, token.reason, token.ready_at, flight.definition, flight.epoch, token.live,
       flight.kind
FROM token
JOIN flight ON flight.number = token.execution
WHERE token.state = 'leased' AND token.owner = $1 AND flight.ended_at IS NULL
ORDER BY token.ready_at;

-- :name validly_leased
-- Of the named tokens ($1 executions, $2 tokens, $3 fences) those whose commit would still be applied.
SELECT flight.id, candidate.id, candidate.fence
FROM unnest($1::text[], $2::text[], $3::integer[]) AS wanted (execution, token, fence)
CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.id = wanted.execution OFFSET 0) AS flight
CROSS JOIN LATERAL (
    SELECT * FROM token WHERE token.execution = flight.number AND token.id = wanted.token OFFSET 0
) AS candidate
WHERE candidate.state = 'leased' AND candidate.fence = wanted.fence AND flight.ended_at IS NULL AND
-- :include in_open_scopes
;

-- :name keys_of
-- The limit keys of named tokens.
SELECT DISTINCT token.limit_key
FROM unnest($1::text[], $2::text[]) AS wanted (execution, token)
CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.id = wanted.execution OFFSET 0) AS flight
CROSS JOIN LATERAL (
    SELECT * FROM token WHERE token.execution = flight.number AND token.id = wanted.token OFFSET 0
) AS token
WHERE token.limit_key IS NOT NULL;

-- :name named_in_line
-- Those of the named tokens that are ready, with their keys after the columns of `plain`.
WITH candidate AS MATERIALIZED (
    SELECT found.*
    FROM unnest($1::text[], $2::text[]) AS wanted (execution, token)
    CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.id = wanted.execution OFFSET 0) AS flight
    CROSS JOIN LATERAL (
        SELECT token.*
        FROM token
        WHERE token.execution = flight.number AND token.id = wanted.token
          AND token.state || '' = 'ready' AND token.limit_key IS NOT NULL
        FOR UPDATE SKIP LOCKED
    ) AS found
), judged AS MATERIALIZED (
    -- :include judged_candidates
)
SELECT
       -- :include candidate_columns
       , judged.limit_key
FROM judged;

-- :name named
-- Leases those of the named tokens ($2 executions, $3 tokens) to worker $1 that are ready. First column: the token
-- has a limit key; such a one is not leased here. (The state is compared in a way that fits no index: when few are
-- ready, the planner would rather walk all of them than look up each.)
WITH candidate AS MATERIALIZED (
    SELECT found.*
    FROM (
        SELECT * FROM unnest($2::text[], $3::text[]) AS wanted (execution, token) LIMIT cardinality($2::text[])
    ) AS wanted
    CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.id = wanted.execution OFFSET 0) AS flight
    CROSS JOIN LATERAL (
        SELECT token.*, token.ctid AS place
        FROM token
        WHERE token.execution = flight.number AND token.id = wanted.token AND token.state || '' = 'ready'
        FOR UPDATE SKIP LOCKED
    ) AS found
), judged AS MATERIALIZED (
    SELECT candidate.*,
           -- :include run_of
           ,
           -- :include may_run
    FROM candidate
    CROSS JOIN LATERAL (SELECT * FROM flight WHERE flight.number = candidate.execution OFFSET 0) AS flight
), given AS (
    UPDATE token
    SET state = 'leased', owner = $1, fence = token.fence + 1
    FROM judged
    WHERE token.ctid = judged.place AND judged.runs AND judged.limit_key IS NULL
    RETURNING token.execution, token.id
)
SELECT judged.limit_key IS NOT NULL,
       CASE WHEN judged.limit_key IS NOT NULL THEN judged.runs ELSE
       -- :include was_given
       END,
       -- :include lease_columns
       ,
       -- :include run_columns
FROM judged;

-- :name give
-- Leases tokens that are locked and were chosen before ($2 executions, $3 tokens) to worker $1.
UPDATE token
SET state = 'leased', owner = $1, fence = fence + 1
FROM unnest($2::bigint[], $3::text[]) AS chosen (execution, id)
WHERE token.execution = chosen.execution AND token.id = chosen.id;

-- :part from_due
-- Locks parked tokens whose time has come ($1: now) or comes within $3 seconds, together with their executions,
-- earliest first, at most $2, those that no other transaction holds.
FROM token
CROSS JOIN LATERAL (
    SELECT * FROM flight WHERE flight.number = token.execution FOR UPDATE SKIP LOCKED
) AS flight
WHERE token.state = 'parked' AND token.due IS NOT NULL
  AND token.due <= coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8) + $3::float8
ORDER BY token.due, token.number
LIMIT $2
FOR UPDATE OF token SKIP LOCKED

-- :name due
-- Tokens that are due, for the rules to wake. Columns as for `load.locked`.
SELECT
       -- :include flight_columns
       ,
       -- :include token_columns
-- :include from_due
;

-- :name wake_plain
-- Wakes due tokens. A token in the root of a running execution that is neither at a barrier nor limited is woken
-- here as by `wake_row`; the others are only returned as due. Of the woken ones, $6 of the queues $5 are leased to
-- worker $4, unless they killed workers before: those need a claim. Those that come due within $3 seconds are
-- leased, too, or left alone.
-- With each row, or alone if nothing is due: the time, when the first of all other parked tokens comes due (in the
-- past, if another transaction holds it), and when the first line that a rate has stopped continues. A token that
-- was changed just before it was locked is neither woken nor due (`was_given`): it counts among the others, and is
-- read again.
WITH due AS MATERIALIZED (
    SELECT token.execution, token.id, token.scope, token.kind, token.node, token.data, token.queue, token.priority,
           token.live, token.fence, token.attempt, token.losses, token.due, token.number, token.ctid AS place,
           'timer' AS reason,
           greatest(token.due, coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8)) AS ready_at,
           flight.state = 'RUNNING' AND token.scope = '' AND token.barrier IS NULL AND token.limit_key IS NULL AS plain,
           -- :include run_of
    -- :include from_due
), wanted AS (
    SELECT due.*, fits AND row_number() OVER (PARTITION BY fits ORDER BY due.due, due.number) <= $6 AS leased
    FROM due
    CROSS JOIN LATERAL (SELECT plain AND losses < 3 AND queue = ANY ($5::text[])) AS what (fits)
), judged AS MATERIALIZED (
    SELECT wanted.*
    FROM wanted
    WHERE leased OR wanted.due <= coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8)
), woken AS (
    UPDATE token
    SET state = CASE WHEN chosen.leased THEN 'leased' ELSE 'ready' END, owner = CASE WHEN chosen.leased THEN $4 END,
        fence = token.fence + CASE WHEN chosen.leased THEN 1 ELSE 0 END, reason = chosen.reason, awaits = NULL,
        turn = chosen.turn, ready_at = chosen.ready_at
    FROM (SELECT nextval('turn') AS turn, judged.* FROM judged WHERE judged.plain) AS chosen
    WHERE token.ctid = chosen.place
    RETURNING token.execution, token.id
), counted AS (
    UPDATE flight
    SET version = version + 1
    WHERE number = ANY (ARRAY(SELECT judged.execution FROM judged WHERE judged.plain))
), first AS MATERIALIZED (
    SELECT token.execution, token.id, token.due
    FROM token
    WHERE token.state = 'parked' AND token.due IS NOT NULL
    ORDER BY token.due
    LIMIT (SELECT count(*) + 1 FROM due)
)
SELECT extract(epoch FROM statement_timestamp())::float8,
       (
           SELECT min(first.due)
           FROM first
           WHERE (first.execution, first.id) NOT IN (
               SELECT woken.execution, woken.id FROM woken
               UNION ALL
               SELECT judged.execution, judged.id FROM judged WHERE NOT judged.plain
           )
       ),
       (SELECT opens_at FROM line WHERE opens_at IS NOT NULL ORDER BY opens_at LIMIT 1),
       CASE WHEN judged.plain THEN awake ELSE judged.plain END, judged.leased AND awake,
       -- :include lease_columns
       , judged.execution, judged.run_state, judged.run_seq, judged.run_live, judged.run_priority,
       judged.run_touched_at, judged.run_notify, judged.run_version + 1
FROM (SELECT) AS always
LEFT JOIN judged ON true
CROSS JOIN LATERAL (
    SELECT nullif(((judged.execution, judged.id) IN (SELECT woken.execution, woken.id FROM woken)) IS TRUE, false)
) AS at_last (awake)
ORDER BY judged.due, judged.number;

-- :name soonest
-- When the first parked token comes due, and when the first line that a rate has stopped continues.
SELECT extract(epoch FROM statement_timestamp())::float8 AS now,
       (SELECT token.due FROM token WHERE token.state = 'parked' AND token.due IS NOT NULL ORDER BY token.due LIMIT 1),
       (SELECT opens_at FROM line WHERE opens_at IS NOT NULL ORDER BY opens_at LIMIT 1);

-- :name lost
-- Locks tokens that are leased to one of these workers together with their executions; columns as for `load.locked`.
SELECT
       -- :include flight_columns
       ,
       -- :include token_columns
FROM token
JOIN flight ON flight.number = token.execution
WHERE token.state = 'leased' AND token.owner = ANY ($1::text[])
ORDER BY token.execution, token.number
FOR UPDATE OF token, flight SKIP LOCKED;

-- :name beat
INSERT INTO worker (id, expires_at, info)
VALUES ($1, coalesce($2::float8, extract(epoch FROM statement_timestamp())::float8) + $3, $4)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, info = excluded.info;

-- :name gone
-- Workers that missed their heartbeat, and unknown owners of leases: such a one died before its first heartbeat,
-- or was forgotten while it took them. Owners are walked one by one, not lease by lease.
WITH RECURSIVE holder AS (
    (SELECT token.owner FROM token WHERE token.state = 'leased' ORDER BY token.owner LIMIT 1)
    UNION ALL
    SELECT (
        SELECT token.owner
        FROM token
        WHERE token.state = 'leased' AND token.owner > holder.owner
        ORDER BY token.owner
        LIMIT 1
    )
    FROM holder
    WHERE holder.owner IS NOT NULL
)
SELECT holder.owner
FROM holder
WHERE holder.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = holder.owner)
UNION
SELECT worker.id
FROM worker
WHERE worker.expires_at < coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8);

-- :name forget
-- Removes those of the workers $2 that are still gone, or known to be dead ($3).
DELETE FROM worker
WHERE id IN (
    SELECT gone.id
    FROM worker AS gone
    WHERE gone.id = ANY ($2::text[])
      AND (
          gone.expires_at < coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8)
          OR gone.id = ANY ($3::text[])
      )
    ORDER BY gone.id
    FOR UPDATE SKIP LOCKED
);

-- :name workers
SELECT worker.id, expires_at, (
    SELECT count(*) FROM token WHERE token.state = 'leased' AND token.owner = worker.id
), info
FROM worker
ORDER BY worker.id;

-- :name known_workers
SELECT id FROM worker ORDER BY id;

-- :name holds_suspect
SELECT 1
FROM token
WHERE token.state = 'leased' AND token.losses >= 3 AND token.owner = $1
LIMIT 1;
