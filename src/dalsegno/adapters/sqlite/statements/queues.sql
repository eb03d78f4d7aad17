-- The lengths of the queues. For people, pages and metrics, never for the engine's loops.

-- :name ready
-- From the index of the line alone.
SELECT queue, count(*), min(ready_at)
FROM token
WHERE state = 'ready' AND limit_key IS NULL
GROUP BY queue;

-- :name in_line
-- The same, for tokens with a limit key.
SELECT queue, count(*), min(ready_at)
FROM token
WHERE state = 'ready' AND limit_key IS NOT NULL
GROUP BY queue;

-- :name running
-- From the index of leased tokens alone.
SELECT queue, count(*)
FROM token
WHERE state = 'leased'
GROUP BY queue;
