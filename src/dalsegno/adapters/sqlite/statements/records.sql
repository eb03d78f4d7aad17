-- Records that people set up, and logs.

-- :name one
SELECT kind, id, data, version, created_at, changed_at
FROM record
WHERE kind = ? AND id = ?;

-- :name page
SELECT kind, id, data, version, created_at, changed_at
FROM record
WHERE kind = ? AND id > ?
ORDER BY id
LIMIT ?;

-- :name put
-- New, or one version more. Whether it may is judged before, in the same transaction.
INSERT INTO record (kind, id, data, version, created_at, changed_at)
VALUES (?, ?, ?, 1, ?, ?)
ON CONFLICT (kind, id) DO UPDATE
SET data = excluded.data, version = version + 1, changed_at = excluded.changed_at;

-- :name remove
DELETE FROM record
WHERE kind = ? AND id = ? AND (? IS NULL OR version = ?);

-- :name append
INSERT INTO log_entry (log, at, data)
VALUES (?, ?, ?);

-- :name entries
SELECT number, at, data
FROM log_entry
WHERE log = ? AND number < ?
ORDER BY number DESC
LIMIT ?;

-- :name trim
DELETE FROM log_entry
WHERE number IN (SELECT number FROM log_entry WHERE log = ? AND at < ? ORDER BY number LIMIT ?);
