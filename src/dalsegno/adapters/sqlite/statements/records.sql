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

-- :name named
-- Of one kind, those with these ids (JSON).
SELECT kind, id, data, version, created_at, changed_at
FROM record
WHERE kind = ? AND id IN (SELECT value FROM json_each(?))
ORDER BY id;

-- :name of
-- All of one kind.
SELECT kind, id, data, version, created_at, changed_at
FROM record
WHERE kind = ?
ORDER BY id;

-- :name put
-- Inserts the record, or increments its version. The expected version is checked before, in the same transaction.
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
