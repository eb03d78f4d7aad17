-- Records that people set up, and logs.

-- :name one
SELECT kind, id, data, version, created_at, changed_at
FROM record
WHERE kind = $1 AND id = $2;

-- :name page
SELECT kind, id, data, version, created_at, changed_at
FROM record
WHERE kind = $1 AND id > $2
ORDER BY id
LIMIT $3;

-- :name put
-- Inserts the record, or increments its version, unconditionally.
INSERT INTO record AS old (kind, id, data, version, created_at, changed_at)
VALUES ($1, $2, $3, 1, $4, $4)
ON CONFLICT (kind, id) DO UPDATE
SET data = excluded.data, version = old.version + 1, changed_at = excluded.changed_at
RETURNING kind, id, data, version, created_at, changed_at;

-- :name create
-- Inserts only if there is none: of many concurrent creates, one gets a row back (R1).
INSERT INTO record (kind, id, data, version, created_at, changed_at)
VALUES ($1, $2, $3, 1, $4, $4)
ON CONFLICT DO NOTHING
RETURNING kind, id, data, version, created_at, changed_at;

-- :name change
-- Changes only the expected version (R1): a statement that waits for the row's lock sees the new version and finds
-- nothing.
UPDATE record
SET data = $3, version = version + 1, changed_at = $4
WHERE kind = $1 AND id = $2 AND version = $5
RETURNING kind, id, data, version, created_at, changed_at;

-- :name remove
DELETE FROM record
WHERE kind = $1 AND id = $2 AND ($3::bigint IS NULL OR version = $3)
RETURNING id;

-- :name append
-- The row of the log is locked until this commits, so no reader ever sees a number before a smaller one (R4). Entries
-- are numbered in the order in which they are given.
WITH counted AS (
    INSERT INTO log AS old (name, newest)
    VALUES ($1, cardinality($3::bytea[]))
    ON CONFLICT (name) DO UPDATE SET newest = old.newest + excluded.newest
    RETURNING newest
)
INSERT INTO log_entry (log, number, at, data)
SELECT $1, newest - cardinality($3::bytea[]) + place, at, data
FROM counted
CROSS JOIN unnest($2::float8[], $3::bytea[]) WITH ORDINALITY AS entry (at, data, place)
RETURNING number;

-- :name entries
SELECT number, at, data
FROM log_entry
WHERE log = $1 AND number < $2
ORDER BY number DESC
LIMIT $3;

-- :name trim
-- Only from the old end: the walk goes by number and stops at the first that is young enough.
DELETE FROM log_entry
WHERE log = $1 AND number = ANY (ARRAY(
    SELECT number
    FROM (
        SELECT number, at
        FROM log_entry
        WHERE log = $1
        ORDER BY number
        LIMIT $3
    ) AS oldest
    WHERE at < $2
))
RETURNING number;
