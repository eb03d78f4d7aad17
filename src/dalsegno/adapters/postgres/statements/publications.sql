-- How far the statuses of executions are published.

-- :name claim
-- Those that have a mark. The mark itself is returned for those that are claimed here: the others are held elsewhere.
-- In the order of their ids, so that two processes do not deadlock.
WITH known AS (
    SELECT execution FROM publication WHERE execution = ANY ($2::text[])
), free AS (
    SELECT execution
    FROM publication
    WHERE execution = ANY ($2::text[])
      AND (owner IS NULL OR owner = $1
           OR until <= coalesce($4::float8, extract(epoch FROM clock_timestamp())::float8))
    ORDER BY execution
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE publication
    SET owner = $1, until = coalesce($4::float8, extract(epoch FROM clock_timestamp())::float8) + $3::float8
    FROM free
    WHERE publication.execution = free.execution
    RETURNING publication.execution, publication.confirmed
)
SELECT known.execution, taken.confirmed
FROM known
LEFT JOIN taken ON taken.execution = known.execution;

-- :name confirm
-- Moves marks and gives up their claims; removes those of $4. Marks that another owner holds are left alone.
WITH mine AS (
    SELECT execution
    FROM publication
    WHERE execution = ANY ($2::text[] || $4::text[]) AND (owner IS NULL OR owner = $1)
    ORDER BY execution
    FOR UPDATE
), removed AS (
    DELETE FROM publication
    USING mine
    WHERE publication.execution = mine.execution AND mine.execution = ANY ($4::text[])
)
UPDATE publication
SET confirmed = greatest(publication.confirmed, given.confirmed), owner = NULL, until = NULL
FROM unnest($2::text[], $3::integer[]) AS given (execution, confirmed)
JOIN mine ON mine.execution = given.execution
WHERE publication.execution = given.execution AND NOT given.execution = ANY ($4::text[]);

-- :name heads
-- What completions contain besides the events; the context only once the history is complete. And whether there are
-- events after the numbers $2.
SELECT id, workflow, definition, kind, state, priority, tags, is_told, CASE WHEN is_told THEN context END, EXISTS (
    SELECT 1
    FROM event
    WHERE event.execution = found.number AND event.seq > found.after
)
FROM (
    SELECT execution.*, wanted.after, ended_at IS NOT NULL AND NOT EXISTS (
        SELECT 1
        FROM token
        WHERE token.execution = execution.number AND token.state <> 'consumed'
    ) AS is_told
    FROM unnest($1::text[], $2::integer[]) AS wanted (id, after)
    JOIN execution ON execution.id = wanted.id
) AS found;

-- :name events
-- The next events of several executions, each after its own number.
SELECT wanted.id, found.*
FROM unnest($1::text[], $2::integer[]) AS wanted (id, seq)
JOIN execution ON execution.id = wanted.id
CROSS JOIN LATERAL (
    SELECT event.seq, event.kind, node, scope, at, data, token, arrived, expected
    FROM event
    WHERE event.execution = execution.number AND event.seq > wanted.seq
    ORDER BY event.seq
    LIMIT $3
) AS found
ORDER BY wanted.id, found.seq;

-- :name last_events
-- The numbers of the last events of executions.
SELECT id, seq FROM flight WHERE id = ANY ($1::text[]);

-- :name unfinished
-- The next marks, by id, and whether their executions have events that are not confirmed.
SELECT execution, coalesce((SELECT seq FROM flight WHERE id = publication.execution) > confirmed, true)
FROM publication
WHERE execution > $1
ORDER BY execution
LIMIT $2;
