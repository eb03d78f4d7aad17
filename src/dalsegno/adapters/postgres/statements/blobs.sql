-- Large values, by their owner and their content.

-- :name put
-- The id names the content, so a second put changes nothing (K1).
INSERT INTO blob (execution, id, data)
VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;

-- :name one
SELECT data
FROM blob
WHERE execution = $1 AND id = $2;
