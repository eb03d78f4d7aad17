-- Large values, by their owner and their content, and how much an execution has stored.

-- :name put
-- The id names the content: a second put changes at most the turn (K1, K5). Tells whether the blob is new.
INSERT INTO blob (execution, id, data, turn)
VALUES ($1, $2, $3, $4)
ON CONFLICT (execution, id) DO UPDATE SET turn = CASE
    WHEN blob.turn IS NULL OR excluded.turn IS NULL THEN NULL
    ELSE greatest(blob.turn, excluded.turn)
END
RETURNING xmax = 0 AS is_new;

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
