-- Limits by key: lines of tokens, and the data that decides if one may move.

-- :name lock
-- The locks of keys, always in the same order. A transaction that changes lines of a key or leases tokens of it
-- holds its lock. 1685286003 keeps them apart from the locks of others.
SELECT pg_advisory_xact_lock(ordered.lock)
FROM (
    SELECT DISTINCT hashtextextended(key, 1685286003) AS lock
    FROM unnest($1::text[]) AS key
    ORDER BY 1
) AS ordered;

-- :name lock_soon
-- The same for claims: of the keys $1 it waits briefly for those in $2; the others are taken if they are free.
-- Returns the keys that are locked now.
SELECT ordered.key
FROM (
    SELECT asked.key, asked.waits, hashtextextended(asked.key, 1685286003) AS lock
    FROM unnest($1::text[], $2::boolean[]) AS asked (key, waits)
    CROSS JOIN (SELECT set_config('lock_timeout', '1s', true)) AS patience (seconds)
    WHERE patience.seconds <> ''
    ORDER BY 3
    OFFSET 0
) AS ordered
WHERE CASE
    WHEN ordered.waits THEN (SELECT true FROM pg_advisory_xact_lock(ordered.lock))
    ELSE pg_try_advisory_xact_lock(ordered.lock)
END;

-- :name line_up
-- A token of this key became ready. A closed line stays closed, unless the new token comes first in it.
INSERT INTO line (queue, key, priority, turn_at, turn)
SELECT given.queue, given.key, given.priority, given.turn_at, nextval('turn')
FROM unnest($1::text[], $2::text[], $3::integer[], $4::float8[]) AS given (queue, key, priority, turn_at)
ON CONFLICT (queue, key) DO UPDATE SET
    priority = greatest(line.priority, excluded.priority),
    shut = line.shut AND excluded.priority <= line.priority,
    opens_at = CASE WHEN excluded.priority > line.priority THEN NULL ELSE line.opens_at END;

-- :name open
-- Opens the lines of keys of which a slot was freed. Returns those that were closed.
UPDATE line
SET shut = false, opens_at = NULL
WHERE key = ANY ($1::text[]) AND shut
RETURNING queue, key;

-- :name tell
-- A message to all processes, in a transaction of its own.
SELECT pg_notify($1, $2);

-- :name hold
INSERT INTO slot_holder (key, execution)
SELECT *
FROM unnest($1::text[], $2::bigint[])
ON CONFLICT DO NOTHING;

-- :name unhold
DELETE FROM slot_holder
WHERE execution = ANY ($1::bigint[]);

-- :name open_lines
-- Lines of these queues ($1) that may move, in turn order, at most $2 of each queue. $3: now.
SELECT found.queue, found.key
FROM unnest($1::text[]) AS wanted (queue)
CROSS JOIN LATERAL (
    SELECT line.queue, line.key
    FROM line
    WHERE line.queue = wanted.queue AND NOT line.shut
    ORDER BY line.priority DESC, line.turn_at, line.turn
    LIMIT $2
) AS found
UNION
SELECT line.queue, line.key
FROM line
WHERE line.opens_at <= $3 AND line.queue = ANY ($1::text[]);

-- :name lines
-- Lines as they are now that their keys are locked; closed ones are left out.
SELECT line.queue, line.key, line.turn_at, line.turn
FROM unnest($1::text[], $2::text[]) AS wanted (queue, key)
JOIN line ON line.queue = wanted.queue AND line.key = wanted.key
WHERE NOT line.shut OR line.opens_at <= $3;

-- :name use
-- Of each key: its rule, its slots in use (leased tokens and executions that hold one, unless their executions
-- have ended), and the number of its last start.
SELECT wanted.key, limit_rule.concurrency, limit_rule.starts, limit_rule.period, (
    SELECT count(*)
    FROM token
    JOIN flight ON flight.number = token.execution
    WHERE token.state = 'leased' AND token.limit_key = wanted.key AND flight.ended_at IS NULL
) + (
    SELECT count(*)
    FROM slot_holder
    JOIN flight ON flight.number = slot_holder.execution
    WHERE slot_holder.key = wanted.key AND flight.ended_at IS NULL
), coalesce((SELECT max(limit_start.number) FROM limit_start WHERE limit_start.key = wanted.key), 0)
FROM unnest($1::text[]) AS wanted (key)
LEFT JOIN limit_rule ON limit_rule.key = wanted.key;

-- :name starts
-- Starts of keys ($1) with numbers from $2 to $3.
SELECT limit_start.key, limit_start.number, limit_start.at
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS wanted (key, first, last)
JOIN limit_start ON limit_start.key = wanted.key AND limit_start.number BETWEEN wanted.first AND wanted.last;

-- :name note_starts
INSERT INTO limit_start (key, number, at, stale_at)
SELECT *
FROM unnest($1::text[], $2::bigint[], $3::float8[], $4::float8[]);

-- :name forget_starts
-- Starts of a key that its rate no longer needs.
DELETE FROM limit_start
USING unnest($1::text[], $2::bigint[]) AS given (key, number)
WHERE limit_start.key = given.key AND limit_start.number <= given.number;

-- :name forget_stale_starts
-- Starts of keys with a rate that are no longer used, at most so many.
DELETE FROM limit_start
WHERE (key, number) IN (
    SELECT stale.key, stale.number
    FROM limit_start AS stale
    WHERE stale.stale_at < $1
    ORDER BY stale.stale_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
);

-- :name leave
-- Stores the state in which a claim leaves lines: served ones move behind the others of their priority, which is
-- now that of their first token; those without room are closed until a slot is free, or until their rate allows a
-- start.
UPDATE line
SET priority = coalesce(given.priority, line.priority),
    turn_at = CASE WHEN given.served THEN given.now ELSE line.turn_at END,
    turn = CASE WHEN given.served THEN given.turn ELSE line.turn END,
    shut = given.shut,
    opens_at = given.opens_at
FROM (
    SELECT nextval('turn') AS turn, $7::float8 AS now, rows.*
    FROM unnest($1::text[], $2::text[], $3::integer[], $4::boolean[], $5::boolean[], $6::float8[])
        AS rows (queue, key, priority, served, shut, opens_at)
) AS given
WHERE line.queue = given.queue AND line.key = given.key;

-- :name clear
-- Lines without tokens. A token added meanwhile creates a new line after this.
DELETE FROM line
USING unnest($1::text[], $2::text[]) AS given (queue, key)
WHERE line.queue = given.queue AND line.key = given.key
  AND NOT EXISTS (
      SELECT 1
      FROM token
      WHERE token.state = 'ready' AND token.limit_key IS NOT NULL AND token.queue = given.queue
        AND token.limit_key = given.key
  )
RETURNING line.queue, line.key;

-- :name due_keys
-- Keys of lines whose rate allows another start by now.
SELECT DISTINCT key
FROM line
WHERE opens_at IS NOT NULL AND opens_at <= coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8);

-- :name open_due
UPDATE line
SET shut = false, opens_at = NULL
WHERE key = ANY ($2::text[]) AND opens_at <= coalesce($1::float8, extract(epoch FROM statement_timestamp())::float8)
RETURNING key;

-- :name set_rule
INSERT INTO limit_rule (key, concurrency, starts, period, changed_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (key) DO UPDATE SET
    concurrency = excluded.concurrency, starts = excluded.starts, period = excluded.period,
    changed_at = excluded.changed_at;

-- :name remove_rule
DELETE FROM limit_rule
WHERE key = $1
RETURNING key;

-- :name keys
-- Every key that has a rule, a line or a slot in use, those greater than $1.
SELECT key FROM limit_rule WHERE key > $1
UNION
SELECT key FROM line WHERE key > $1
UNION
SELECT limit_key FROM token WHERE state = 'leased' AND limit_key IS NOT NULL AND limit_key > $1
UNION
SELECT key FROM slot_holder WHERE key > $1
ORDER BY 1
LIMIT $2;

-- :name waiting
-- How many ready tokens of each key there are, counted up to a bound.
SELECT wanted.key, (
    SELECT count(*)
    FROM (
        SELECT 1
        FROM line
        JOIN token ON token.queue = line.queue AND token.limit_key = line.key
        WHERE line.key = wanted.key AND token.state = 'ready' AND token.limit_key IS NOT NULL
        LIMIT $2
    ) AS counted
)
FROM unnest($1::text[]) AS wanted (key);
