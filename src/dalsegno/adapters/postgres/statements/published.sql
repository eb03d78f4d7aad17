-- Published values and streams of executions.

-- :name publish
-- What turns publish. The rows come in the order of their keys.
INSERT INTO published_value AS known (execution, key, data, version, at)
SELECT execution, key, data, 1, at
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::float8[]) AS given (execution, key, data, at)
ON CONFLICT (execution, key) DO UPDATE
SET data = excluded.data, version = known.version + 1, at = excluded.at, token = '', fence = 0, passing = false;

-- :name save_values
-- What running tasks publish, unless a later run of the task has written meanwhile. Returns the keys that were written.
INSERT INTO published_value AS known (execution, key, data, version, at, token, fence, passing)
SELECT execution, key, data, version, $8::float8, token, fence, passing
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[], $7::boolean[])
    AS given (execution, key, data, version, token, fence, passing)
ON CONFLICT (execution, key) DO UPDATE
SET data = excluded.data, version = greatest(known.version + 1, excluded.version), at = excluded.at,
    token = excluded.token, fence = excluded.fence, passing = excluded.passing
WHERE known.token <> excluded.token OR known.fence <= excluded.fence
RETURNING execution, key;

-- :name remove_values
DELETE FROM published_value
USING unnest($1::text[], $2::text[]) AS gone (execution, key)
WHERE published_value.execution = gone.execution AND published_value.key = gone.key
  AND published_value.execution = ANY ($1::text[]);

-- :name known_values
SELECT execution, key, octet_length(data), version, token, fence
FROM published_value
WHERE execution = ANY ($1::text[]);

-- :name fences
-- The fences of those tokens that are leased.
SELECT given.execution, given.token, token.fence
FROM unnest($1::text[], $2::text[]) AS given (execution, token)
JOIN flight ON flight.id = given.execution
JOIN token ON token.execution = flight.number AND token.id = given.token
WHERE token.state = 'leased';

-- :name values
SELECT key, data, version, at
FROM published_value
WHERE execution = $1
  AND (NOT passing OR NOT EXISTS (SELECT FROM execution WHERE id = $1 AND ended_at IS NOT NULL))
ORDER BY key;

-- :name marks
SELECT execution, count(*), sum(version)::bigint, sum(at)
FROM published_value
WHERE execution = ANY ($1::text[])
  AND (NOT passing OR NOT EXISTS (
      SELECT FROM execution WHERE execution.id = published_value.execution AND ended_at IS NOT NULL
  ))
GROUP BY execution;

-- :name sizes
SELECT key, octet_length(data) FROM published_value WHERE execution = $1;

-- :name lock_streams
-- The streams, which exist from then on, in the order of their names.
INSERT INTO stream AS known (execution, name, length, bytes, closed, token, fence)
SELECT execution, name, 0, 0, false, '', 0
FROM unnest($1::text[], $2::text[]) AS given (execution, name)
ON CONFLICT (execution, name) DO UPDATE SET length = known.length
RETURNING execution, name, length, bytes, closed, token, fence;

-- :name known_streams
-- All streams of some executions.
SELECT execution, name, length, bytes, closed, token, fence
FROM stream
WHERE execution = ANY ($1::text[]) AND (length > 0 OR closed);

-- :name stored
SELECT execution, bytes FROM stored_bytes WHERE execution = ANY ($1::text[]);

-- :name write_streams
-- Heads of streams that are locked, and new parts.
WITH heads AS (
    INSERT INTO stream (execution, name, length, bytes, closed, token, fence)
    SELECT *
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::boolean[], $6::text[], $7::bigint[])
    ON CONFLICT (execution, name) DO UPDATE
    SET length = excluded.length, bytes = excluded.bytes, closed = excluded.closed, token = excluded.token,
        fence = excluded.fence
)
INSERT INTO stream_part (execution, stream, first, count, at, task, attempt, restarts, data)
SELECT *
FROM unnest($8::text[], $9::text[], $10::bigint[], $11::integer[], $12::float8[], $13::text[], $14::integer[],
            $15::boolean[], $16::bytea[]);

-- :name charge
INSERT INTO stored_bytes (execution, bytes)
SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (execution) DO UPDATE SET bytes = stored_bytes.bytes + excluded.bytes;

-- :name streams
SELECT name, length, bytes, closed
FROM stream
WHERE execution = $1 AND (length > 0 OR closed)
ORDER BY name;

-- :name lengths
SELECT stream.execution, stream.name, length, bytes, closed
FROM unnest($1::text[], $2::text[]) AS wanted (execution, name)
JOIN stream ON stream.execution = wanted.execution AND stream.name = wanted.name
WHERE stream.execution = ANY ($1::text[]) AND (length > 0 OR closed);

-- :name parts
SELECT first, count, at, task, attempt, restarts, data
FROM stream_part
WHERE execution = $1 AND stream = $2 AND first + count > $3 AND first >= coalesce((
    SELECT max(first) FROM stream_part WHERE execution = $1 AND stream = $2 AND first <= $3
), 0)
ORDER BY first
LIMIT $4;
