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

-- :name unfinished
-- Those with events that are not confirmed, by id.
SELECT execution
FROM publication
LEFT JOIN flight ON flight.id = publication.execution
WHERE execution > $1 AND (flight.id IS NULL OR flight.seq > confirmed)
ORDER BY execution
LIMIT $2;
