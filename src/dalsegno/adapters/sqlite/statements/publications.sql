-- How far the statuses of executions are published.

-- :name add
INSERT OR IGNORE INTO publication (execution, owner, until) VALUES (?, ?, ?);

-- :name known
-- Those of a JSON list of ids that have a mark, and whether it is free for this owner now.
SELECT execution, confirmed, owner IS NULL OR owner = :owner OR until <= :now
FROM json_each(:executions) AS wanted
CROSS JOIN publication ON publication.execution = wanted.value;

-- :name claim
UPDATE publication SET owner = ?, until = ? WHERE execution = ?;

-- :name confirm
-- Moves the mark and gives up the claim, unless another owner holds it.
UPDATE publication SET confirmed = max(confirmed, ?), owner = NULL, until = NULL
WHERE execution = ? AND (owner IS NULL OR owner = ?);

-- :name remove
DELETE FROM publication WHERE execution = ? AND (owner IS NULL OR owner = ?);

-- :name heads
-- What completions contain besides the events; the context only once the history is complete.
SELECT id, workflow, definition, kind, state, priority, tags, is_told, CASE WHEN is_told THEN context END
FROM (
    SELECT execution.*, ended_at IS NOT NULL AND NOT EXISTS (
        SELECT 1
        FROM token
        WHERE token.execution = execution.number AND token.state <> 'consumed'
    ) AS is_told
    FROM json_each(?) AS wanted
    CROSS JOIN execution ON execution.id = wanted.value
) AS found;

-- :name last_events
-- The numbers of the last events of executions.
SELECT id, seq FROM flight WHERE id IN (SELECT value FROM json_each(?));

-- :name unfinished
-- The next marks, by id, and whether their executions have events that are not confirmed.
SELECT execution, coalesce((SELECT seq FROM flight WHERE id = publication.execution) > confirmed, true)
FROM publication
WHERE execution > ?
ORDER BY execution
LIMIT ?;
