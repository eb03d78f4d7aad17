-- Large values, by their owner and their content, and the bytes that an execution has stored.

-- :name put
-- The id names the content: a second put changes at most the turn (K1, K5). A new blob is charged first, within
-- the limit $5, and stored if it was (K4). Returns if it was charged, and if it is new; no row if there was no
-- room. Only if the same blob is put or pruned at the same time, one is true without the other.
WITH known AS (
    SELECT FROM blob WHERE execution = $1::text AND id = $2::text
), charged AS (
    INSERT INTO stored_bytes AS stored (execution, bytes)
    SELECT $1::text, octet_length($3::bytea)
    WHERE NOT EXISTS (SELECT FROM known) AND ($5::bigint IS NULL OR octet_length($3::bytea) <= $5)
    ON CONFLICT (execution) DO UPDATE SET bytes = stored.bytes + excluded.bytes
    WHERE $5 IS NULL OR stored.bytes + excluded.bytes <= $5
    RETURNING bytes
)
INSERT INTO blob (execution, id, data, turn)
SELECT $1::text, $2::text, $3::bytea, $4::bigint
WHERE EXISTS (SELECT FROM known) OR EXISTS (SELECT FROM charged)
ON CONFLICT (execution, id) DO UPDATE SET turn = CASE
    WHEN blob.turn IS NULL OR excluded.turn IS NULL THEN NULL
    ELSE greatest(blob.turn, excluded.turn)
END
RETURNING EXISTS (SELECT FROM charged) AS is_charged, xmax = 0 AS is_new;

-- :name has
SELECT
FROM blob
WHERE execution = $1 AND id = $2;

-- :name one
SELECT data
FROM blob
WHERE execution = $1 AND id = $2;

-- :name stored
SELECT bytes
FROM stored_bytes
WHERE execution = $1;

-- :name charge
INSERT INTO stored_bytes (execution, bytes)
VALUES ($1, greatest($2::bigint, 0))
ON CONFLICT (execution) DO UPDATE SET bytes = greatest(stored_bytes.bytes + $2::bigint, 0)
RETURNING bytes;

-- :name prune
-- A blob that a turn puts again meanwhile has that turn's number when this gets its lock, and stays.
WITH gone AS (
    DELETE FROM blob
    WHERE execution = $1 AND turn < $2 AND id <> ALL ($3::text[])
    RETURNING octet_length(data) AS size
)
UPDATE stored_bytes
SET bytes = greatest(bytes - (SELECT coalesce(sum(size), 0) FROM gone), 0)
WHERE execution = $1 AND EXISTS (SELECT FROM gone);

-- :name remove
WITH gone AS (
    DELETE FROM blob
    WHERE execution = $1 AND id = ANY ($2::text[]) AND turn IS NOT NULL
    RETURNING octet_length(data) AS size
)
UPDATE stored_bytes
SET bytes = greatest(bytes - (SELECT coalesce(sum(size), 0) FROM gone), 0)
WHERE execution = $1 AND EXISTS (SELECT FROM gone);
