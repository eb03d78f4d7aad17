-- Reads. Nothing here locks or changes anything.

-- :name now
SELECT extract(epoch FROM clock_timestamp())::float8;

-- :name next_numbers
-- The first of a block of numbers for new executions: the day in the upper bits, then the counter.
SELECT (floor(extract(epoch FROM clock_timestamp()) / 86400)::bigint << 40) + nextval('execution_number');

-- :name slots
SELECT slot, live, data
FROM slot
WHERE execution = (SELECT number FROM flight WHERE id = $1) AND barrier = $2 AND slot > $3
ORDER BY slot
LIMIT $4;

-- :name left
SELECT key, data
FROM left_context
WHERE execution = (SELECT number FROM execution WHERE id = $1) AND scope = $2
ORDER BY key;

-- :name gate
SELECT used
FROM gate
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1) AND id = $2;

-- :name outputs
SELECT id, data
FROM output
WHERE execution = (SELECT number FROM execution WHERE execution.id = $1) AND id = ANY ($2::text[]);

-- :name execution
-- In the order of ExecutionView's fields; the tags are JSON.
SELECT *
FROM execution_view
WHERE id = $1;

-- :name tokens
-- Unfinished tokens, in the order of TokenRow's fields after the execution.
SELECT id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt, losses, reason,
       barrier, ready_at, digest, awaits, allowance
FROM token
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1)
  AND state IN ('ready', 'leased', 'parked', 'held')
ORDER BY number;

-- :name barriers
-- In the order of BarrierRow's fields after the execution.
SELECT id, scope, node, mode, expected, join_token, state, resolved, live, deadline, milestone_at, milestone_token
FROM barrier
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1);

-- :name visit
-- The first of the barriers between two ids; one that still waits comes before the others.
SELECT id, scope, node, mode, expected, join_token, state, resolved, live, deadline, milestone_at, milestone_token
FROM barrier
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1) AND id > $2 AND id < $3
ORDER BY state <> 'waiting', id
LIMIT 1;

-- :name machine
-- Everything in one query: the machine, its inbox in the order of the numbers, and the signals that are not taken.
SELECT version, snapshot, reachable, wake, inbox, read, line, cancel, interrupted
FROM machine
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1);

-- :name inbox
SELECT promise, ok, data, number
FROM inbox
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1)
ORDER BY number;

-- :name mailbox
SELECT id, name, data, number, place
FROM mailbox
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1) AND NOT taken
ORDER BY number;

-- :name posted
-- What was posted under pairs of execution ($1) and id ($2). Only of one that was taken is the data read: the answer.
SELECT asked.execution, mailbox.id, name, mailbox.number, taken, CASE WHEN taken THEN data ELSE '' END
FROM unnest($1::text[], $2::text[]) AS asked (execution, id)
JOIN flight ON flight.id = asked.execution
JOIN mailbox ON mailbox.execution = flight.number AND mailbox.id = asked.id;

-- :name unanswered
SELECT id, name, number, taken
FROM mailbox
WHERE execution = (SELECT number FROM flight WHERE flight.id = $1) AND id >= $2 AND id < $3
    AND (NOT taken OR length(data) = 0)
ORDER BY number
LIMIT $4;

-- :name waiting_signals
-- Walks mailbox_waiting, up to the requested number.
SELECT count(*)
FROM (
    SELECT 1
    FROM mailbox
    WHERE execution = (SELECT number FROM flight WHERE flight.id = $1) AND NOT taken
    LIMIT $2
) AS waiting;

-- :name examine
-- Everything that explains why executions ($1) have not ended, at one moment: a row of each that exists, in the
-- order of $1; the first row has the workers, too. Of the values of an execution only the lengths are read. The
-- columns of each part are those of the statements above, of `leases.workers`, `limits.use` and `records.one`.
-- Records are those of the kinds $2 (about unfinished tokens: $3 is the prefix of their ids), $4 (about queues in
-- which a token is ready) and $5 (the first 1,000, if a token is ready).
SELECT
    ROW (view.id, view.workflow, view.version, view.definition, view.state, 'null'::bytea, view.created_at,
         view.touched_at, view.epoch, view.live, view.seq, view.priority, view.tags, view.idempotency_key, view.parent,
         view.relation, view.paused_at, view.ended_at, NULL::bytea, NULL::bytea, view.error, view.kind,
         octet_length(view.input) + coalesce(octet_length(view.output), 0) + coalesce(octet_length(view.context), 0)),
    ARRAY(
        SELECT ROW (id, scope, kind, node, data, queue, priority, limit_key, live, state, due, fence, owner, attempt,
                    losses, reason, barrier, ready_at, digest, awaits, allowance)
        FROM token
        WHERE execution = flight.number AND state IN ('ready', 'leased', 'parked', 'held')
        ORDER BY number
    ),
    ARRAY(
        SELECT ROW (id, scope, node, mode, expected, join_token, state, resolved, live, deadline, milestone_at,
                    milestone_token)
        FROM barrier
        WHERE execution = flight.number
    ),
    ARRAY(
        SELECT ROW (waiting.id, open.number)
        FROM (
            SELECT id, expected FROM barrier WHERE execution = flight.number AND state = 'waiting' LIMIT $6
        ) AS waiting
        CROSS JOIN LATERAL (
            SELECT number
            FROM (SELECT generate_series(0, waiting.expected - 1) AS number) AS numbers
            WHERE (
                SELECT true
                FROM slot
                WHERE slot.execution = flight.number AND slot.barrier = waiting.id AND slot.slot = numbers.number
            ) IS NULL
            LIMIT $7
        ) AS open
    ),
    (
        SELECT ROW (version, snapshot, reachable, wake, inbox, read, line, cancel, interrupted)
        FROM machine
        WHERE execution = flight.number
    ),
    ARRAY(SELECT ROW (promise, ok, data, number) FROM inbox WHERE execution = flight.number ORDER BY number),
    ARRAY(
        SELECT ROW (id, name, data, number, place)
        FROM mailbox
        WHERE execution = flight.number AND NOT taken
        ORDER BY number
    ),
    ARRAY(
        SELECT ROW (
            own.key, own.allowance, limit_rule.concurrency, limit_rule.starts, limit_rule.period, (
                SELECT count(*)
                FROM token
                JOIN flight AS holder ON holder.number = token.execution
                WHERE token.state = 'leased' AND token.limit_key = own.key AND holder.ended_at IS NULL
            ) + (
                SELECT count(*)
                FROM slot_holder
                JOIN flight AS holder ON holder.number = slot_holder.execution
                WHERE slot_holder.key = own.key AND holder.ended_at IS NULL
            ), (
                SELECT count(*)
                FROM (
                    SELECT 1
                    FROM line
                    JOIN token ON token.queue = line.queue AND token.limit_key = line.key
                    WHERE line.key = own.key AND token.state = 'ready' AND token.limit_key IS NOT NULL
                    LIMIT $8
                ) AS counted
            ), (
                SELECT at
                FROM limit_start
                WHERE key = own.key
                  AND number = (SELECT max(latest.number) FROM limit_start AS latest WHERE latest.key = own.key) + 1
                      - coalesce(limit_rule.starts, (own.allowance::json -> 'rate' ->> 'starts')::bigint)
            )
        )
        FROM (
            SELECT DISTINCT limit_key AS key, allowance
            FROM token
            WHERE execution = flight.number AND state = 'ready' AND limit_key IS NOT NULL
        ) AS own
        LEFT JOIN limit_rule ON limit_rule.key = own.key
    ),
    ARRAY(
        SELECT ROW (record.kind, record.id, record.data, record.version, record.created_at, record.changed_at)
        FROM (
            SELECT $2::text AS kind, $3::text || id AS id
            FROM token
            WHERE execution = flight.number AND state IN ('ready', 'leased', 'parked', 'held')
            UNION
            SELECT $4::text, queue
            FROM token
            WHERE execution = flight.number AND state = 'ready'
        ) AS named
        CROSS JOIN LATERAL (
            SELECT kind, id, data, version, created_at, changed_at
            FROM record
            WHERE kind = named.kind AND id = named.id
            LIMIT 1
        ) AS record
        UNION ALL
        SELECT ROW (of_kind.kind, of_kind.id, of_kind.data, of_kind.version, of_kind.created_at, of_kind.changed_at)
        FROM (
            SELECT kind, id, data, version, created_at, changed_at
            FROM record
            WHERE kind = $5
              AND EXISTS (SELECT 1 FROM token WHERE execution = flight.number AND state = 'ready')
            ORDER BY id
            LIMIT 1000
        ) AS of_kind
    ),
    CASE WHEN row_number() OVER (ORDER BY asked.place) = 1 THEN ARRAY(
        SELECT ROW (worker.id, expires_at, (
            SELECT count(*) FROM token WHERE token.state = 'leased' AND token.owner = worker.id
        ), info)
        FROM worker
        ORDER BY worker.id
    ) END
FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, place)
JOIN execution_view AS view ON view.id = asked.id
LEFT JOIN flight ON flight.id = asked.id
ORDER BY asked.place;

-- :name ready
SELECT token.id, flight.id, queue, token.priority, node
FROM flight
JOIN token ON token.execution = flight.number
WHERE flight.id = $1 AND token.state = 'ready'
ORDER BY ready_at, turn;

-- :name untouched
-- Walks the flight rows by id; only unfinished executions and those not swept yet are there. A last row has the
-- cursor of the next page.
WITH looked AS MATERIALIZED (
    SELECT id, ended_at, touched_at
    FROM flight
    WHERE id > $1
    ORDER BY id
    LIMIT $2
)
SELECT id, true
FROM looked
WHERE ended_at IS NULL AND touched_at < $3
UNION ALL
SELECT max(id), false
FROM looked
HAVING count(*) = $2;

-- :name queues
-- Ready tokens of each queue ($1 at most, as they are taken), since when the first of them waits, and leased ones.
-- From one queue to the next the index is walked in one step.
WITH RECURSIVE open_queue AS (
    (SELECT queue FROM token WHERE state = 'ready' AND limit_key IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT token.queue
        FROM token
        WHERE state = 'ready' AND limit_key IS NULL AND token.queue > open_queue.queue
        ORDER BY token.queue
        LIMIT 1
    )
    FROM open_queue
    WHERE open_queue.queue IS NOT NULL
), limited_queue AS (
    (SELECT queue FROM token WHERE state = 'ready' AND limit_key IS NOT NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT token.queue
        FROM token
        WHERE state = 'ready' AND limit_key IS NOT NULL AND token.queue > limited_queue.queue
        ORDER BY token.queue
        LIMIT 1
    )
    FROM limited_queue
    WHERE limited_queue.queue IS NOT NULL
), at_work AS (
    SELECT open_queue.queue, counted.ready, 0 AS running, counted.oldest
    FROM open_queue
    CROSS JOIN LATERAL (
        SELECT count(*) AS ready, min(ready_at) AS oldest
        FROM (
            SELECT ready_at
            FROM token
            WHERE token.queue = open_queue.queue AND state = 'ready' AND limit_key IS NULL
            ORDER BY CASE WHEN losses >= 3 THEN 1 ELSE 0 END, priority DESC, ready_at, turn
            LIMIT $1
        ) AS first
    ) AS counted
    WHERE open_queue.queue IS NOT NULL
    UNION ALL
    SELECT limited_queue.queue, counted.ready, 0, counted.oldest
    FROM limited_queue
    CROSS JOIN LATERAL (
        SELECT count(*) AS ready, min(ready_at) AS oldest
        FROM (
            SELECT ready_at
            FROM token
            WHERE token.queue = limited_queue.queue AND state = 'ready' AND limit_key IS NOT NULL
            ORDER BY limit_key, CASE WHEN losses >= 3 THEN 1 ELSE 0 END, priority DESC, ready_at, turn
            LIMIT $1
        ) AS first
    ) AS counted
    WHERE limited_queue.queue IS NOT NULL
    UNION ALL
    SELECT queue, 0, count(*), NULL
    FROM token
    WHERE state = 'leased'
    GROUP BY queue
)
SELECT queue, sum(ready)::bigint, sum(running)::bigint, min(oldest)
FROM at_work
GROUP BY queue
ORDER BY queue;

-- :name outbox
-- Oldest first, in the order of OutboxEntry's fields.
SELECT id, execution, topic, data
FROM outbox
ORDER BY turn
LIMIT $1;

-- :name rights
-- The privileges on the schema that this role lacks for running workflows. Read from the catalogue, which every
-- role may read.
SELECT quote_ident(current_user) AS role, kind, name
FROM (
    SELECT 'schema' AS kind, nspname::text AS name, has_schema_privilege(oid, 'USAGE') AS granted
    FROM pg_namespace
    WHERE nspname = 'dalsegno'
    UNION ALL
    SELECT CASE relkind WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view' ELSE 'table' END, relname,
           CASE relkind
               WHEN 'S' THEN has_sequence_privilege(pg_class.oid, 'USAGE')
               WHEN 'v' THEN has_table_privilege(pg_class.oid, 'SELECT')
               ELSE has_table_privilege(pg_class.oid, 'SELECT') AND has_table_privilege(pg_class.oid, 'INSERT')
                   AND has_table_privilege(pg_class.oid, 'UPDATE') AND has_table_privilege(pg_class.oid, 'DELETE')
           END
    FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace AND nspname = 'dalsegno'
    WHERE relkind IN ('r', 'p', 'S', 'v') AND NOT relispartition
) AS thing
WHERE NOT granted
ORDER BY kind, name;
