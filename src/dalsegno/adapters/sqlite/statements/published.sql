-- Published values and streams of executions.

-- :name publish
INSERT INTO published_value (execution, key, data, version, at)
VALUES (?, ?, ?, 1, ?)
ON CONFLICT DO UPDATE
SET data = excluded.data, version = version + 1, at = excluded.at, token = '', fence = 0, passing = 0;

-- :name save_value
INSERT INTO published_value (execution, key, data, version, at, token, fence, passing)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE
SET data = excluded.data, version = excluded.version, at = excluded.at, token = excluded.token,
    fence = excluded.fence, passing = excluded.passing;

-- :name remove_value
DELETE FROM published_value WHERE execution = ? AND key = ?;

-- :name known_values
SELECT execution, published_value.key, length(data), version, token, fence
FROM json_each(?) AS wanted
CROSS JOIN published_value ON published_value.execution = wanted.value;

-- :name values
SELECT key, data, version, at
FROM published_value
WHERE execution = ?1
  AND (NOT passing OR NOT EXISTS (SELECT 1 FROM execution WHERE id = ?1 AND ended_at IS NOT NULL))
ORDER BY key;

-- :name marks
SELECT published_value.execution, count(*), sum(published_value.version), total(at)
FROM json_each(?) AS wanted
CROSS JOIN published_value ON published_value.execution = wanted.value
WHERE NOT passing
   OR NOT EXISTS (SELECT 1 FROM execution WHERE execution.id = published_value.execution AND ended_at IS NOT NULL)
GROUP BY published_value.execution;

-- :name sizes
SELECT key, length(data) FROM published_value WHERE execution = ?;

-- :name stream
SELECT length, bytes, closed, token, fence FROM stream WHERE execution = ? AND name = ?;

-- :name known_streams
SELECT execution, name, length, bytes, closed, token, fence
FROM json_each(?) AS wanted
CROSS JOIN stream ON stream.execution = wanted.value;

-- :name stored
SELECT execution, bytes
FROM json_each(?) AS wanted
CROSS JOIN stored_bytes ON stored_bytes.execution = wanted.value;

-- :name save_stream
INSERT INTO stream (execution, name, length, bytes, closed, token, fence)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE
SET length = excluded.length, bytes = excluded.bytes, closed = excluded.closed, token = excluded.token,
    fence = excluded.fence;

-- :name add_part
INSERT INTO stream_part (execution, stream, first, count, at, task, attempt, restarts, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- :name streams
SELECT name, length, bytes, closed FROM stream WHERE execution = ? ORDER BY name;

-- :name lengths
SELECT stream.execution, stream.name, length, bytes, closed
FROM json_each(?) AS wanted
CROSS JOIN stream ON stream.execution = json_extract(wanted.value, '$[0]')
                 AND stream.name = json_extract(wanted.value, '$[1]');

-- :name parts
SELECT first, count, at, task, attempt, restarts, data
FROM stream_part
WHERE execution = ?1 AND stream = ?2 AND first >= coalesce((
    SELECT first
    FROM stream_part
    WHERE execution = ?1 AND stream = ?2 AND first <= ?3
    ORDER BY first DESC
    LIMIT 1
), 0) AND first + count > ?3
ORDER BY first
LIMIT ?4;
