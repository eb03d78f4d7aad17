-- Reading. Nothing here locks or changes anything.

-- :name now
SELECT extract(epoch FROM clock_timestamp())::float8;

-- :name next_numbers
-- The first of a block of numbers for new executions: the day in front, then the count.
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
-- What is unfinished, in the order of TokenRow's fields after the execution.
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

-- :name machine
-- Everything in one look: the machine, its inbox in the order of the numbers, and the signals nobody has taken.
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

-- :name ready
SELECT token.id, flight.id, queue, token.priority
FROM flight
JOIN token ON token.execution = flight.number
WHERE flight.id = $1 AND token.state = 'ready'
ORDER BY ready_at, turn;

-- :name untouched
-- Walks the flight rows by id; only unfinished executions and those not swept yet are there. A last row says where to
-- go on.
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
-- Ready tokens of each queue ($1 at most, as they are taken), since when the first of them waits, and leased ones. From
-- one queue to the next the index is walked in one step.
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
-- What of the schema this role may not use as running workflows needs it. Asked of the catalogue, which everybody may read.
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
