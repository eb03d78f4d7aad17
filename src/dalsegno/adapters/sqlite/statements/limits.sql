-- Lines of tokens with a limit key, and the data that decides if one may move.

-- :name line_up
-- A token of this key became ready. A closed line stays closed, unless the new token comes first in it.
INSERT INTO line (queue, key, priority, turn_at, turn)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    priority = max(priority, excluded.priority),
    shut = CASE WHEN excluded.priority > priority THEN 0 ELSE shut END,
    opens_at = CASE WHEN excluded.priority > priority THEN NULL ELSE opens_at END;

-- :name open_lines
-- Lines of one queue that may move, in turn order, with the rule of each key and its slots in use. Reads as many
-- lines as it returns.
SELECT queue, line.key, priority, turn_at, turn, concurrency, starts, period, (
    SELECT count(*)
    FROM token
    CROSS JOIN flight ON flight.number = token.execution
    WHERE token.state = 'leased' AND token.limit_key = line.key AND flight.ended_at IS NULL
) + (
    SELECT count(*)
    FROM slot_holder
    CROSS JOIN flight ON flight.number = slot_holder.execution
    WHERE slot_holder.key = line.key AND flight.ended_at IS NULL
)
FROM line
LEFT JOIN limit_rule ON limit_rule.key = line.key
WHERE queue = ? AND shut = 0
ORDER BY priority DESC, turn_at, turn
LIMIT ?;

-- :name any_suspect
-- True if a token that killed workers before is in any line of a queue.
SELECT 1
FROM token INDEXED BY token_suspect_in_line
WHERE state = 'ready' AND limit_key IS NOT NULL AND losses >= 3 AND queue = ?
LIMIT 1;

-- :name any
-- True if any limit matters: a store without them queries this once.
SELECT 1
FROM line
UNION ALL
SELECT 1
FROM slot_holder
LIMIT 1;

-- :name heads
-- Ready tokens of one line by priority, then age; the third parameter as in token.ready.
SELECT token.number, flight.id, token.id, scope, token.kind, node, data, queue, token.priority, limit_key, token.live,
       token.state, due, fence, owner, attempt, losses, reason, barrier, ready_at, digest, awaits, allowance, turn
FROM token
CROSS JOIN flight ON flight.number = token.execution
WHERE token.state = 'ready' AND queue = ? AND limit_key = ? AND (losses >= 3) = ?
ORDER BY token.priority DESC, ready_at, turn
LIMIT ?;

-- :name lines_of
-- The lines of a key, and the first token in each.
SELECT token.id, flight.id, line.queue, token.priority, token.node
FROM line
JOIN token ON token.number = (
    SELECT number
    FROM token AS first
    WHERE first.state = 'ready' AND first.queue = line.queue AND first.limit_key = line.key AND (first.losses >= 3) = 0
    ORDER BY first.priority DESC, first.ready_at, first.turn
    LIMIT 1
)
JOIN flight ON flight.number = token.execution
WHERE line.key = ?;

-- :name in_use
-- Slots of a key: its leased tokens and the executions that hold one, unless their executions have ended.
SELECT (
    SELECT count(*)
    FROM token
    CROSS JOIN flight ON flight.number = token.execution
    WHERE token.state = 'leased' AND token.limit_key = :key AND flight.ended_at IS NULL
) + (
    SELECT count(*)
    FROM slot_holder
    CROSS JOIN flight ON flight.number = slot_holder.execution
    WHERE slot_holder.key = :key AND flight.ended_at IS NULL
);

-- :name rule
SELECT concurrency, starts, period
FROM limit_rule
WHERE key = ?;

-- :name last_start
SELECT max(number)
FROM limit_start
WHERE key = ?;

-- :name start_at
SELECT at
FROM limit_start
WHERE key = ? AND number = ?;

-- :name note_start
INSERT INTO limit_start (key, number, at, stale_at)
VALUES (?, ?, ?, ?);

-- :name forget_starts
-- Starts of a key that its rate no longer needs.
DELETE FROM limit_start
WHERE key = ? AND number <= ?;

-- :name forget_stale_starts
DELETE FROM limit_start
WHERE (key, number) IN (SELECT key, number FROM limit_start WHERE stale_at < ? LIMIT ?);

-- :name any_stale_start
SELECT 1
FROM limit_start
WHERE stale_at < ?
LIMIT 1;

-- :name serve
-- A line was served: it moves behind the others of its priority, which is now that of its first token.
UPDATE line
SET priority = ?, turn_at = ?, turn = ?
WHERE queue = ? AND key = ?;

-- :name shut
UPDATE line
SET shut = 1, opens_at = ?
WHERE queue = ? AND key = ?;

-- :name clear
-- The line is empty.
DELETE FROM line
WHERE queue = ? AND key = ?;

-- :name open
-- Opens the lines of a key of which a slot was freed.
UPDATE line
SET shut = 0, opens_at = NULL
WHERE key = ? AND shut = 1;

-- :name open_due
-- Lines whose rate allows another start by now.
UPDATE line
SET shut = 0, opens_at = NULL
WHERE opens_at IS NOT NULL AND opens_at <= ?
RETURNING key;

-- :name next_opening
SELECT opens_at
FROM line
WHERE opens_at IS NOT NULL
ORDER BY opens_at
LIMIT 1;

-- :name used_by
-- The keys of which an execution holds slots, by its leases or by itself.
SELECT limit_key
FROM token
WHERE execution = :execution AND state = 'leased' AND limit_key IS NOT NULL
UNION
SELECT key
FROM slot_holder
WHERE execution = :execution;

-- :name hold
INSERT INTO slot_holder (key, execution)
VALUES (?, ?)
ON CONFLICT DO NOTHING;

-- :name unhold
DELETE FROM slot_holder
WHERE execution = ?;

-- :name set_rule
INSERT INTO limit_rule (key, concurrency, starts, period, changed_at)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    concurrency = excluded.concurrency, starts = excluded.starts, period = excluded.period,
    changed_at = excluded.changed_at;

-- :name remove_rule
DELETE FROM limit_rule
WHERE key = ?;

-- :name keys
-- Every key that has a rule, a line or a slot in use, those greater than the first parameter.
SELECT key FROM limit_rule WHERE key > :after
UNION
SELECT key FROM line WHERE key > :after
UNION
SELECT limit_key FROM token WHERE state = 'leased' AND limit_key IS NOT NULL AND limit_key > :after
UNION
SELECT key FROM slot_holder WHERE key > :after
ORDER BY 1
LIMIT :limit;

-- :name waiting
-- How many ready tokens of a key there are, counted up to a bound.
SELECT count(*)
FROM (
    SELECT 1
    FROM line
    CROSS JOIN token ON token.state = 'ready' AND token.queue = line.queue AND token.limit_key = line.key
    WHERE line.key = ?
    LIMIT ?
);
