-- Workers: a lease is valid as long as its worker's heartbeats are in time.

-- :name beat
INSERT INTO worker (id, expires_at, info)
VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET expires_at = excluded.expires_at, info = excluded.info;

-- :name register
-- A worker that was given a lease before its first heartbeat.
INSERT INTO worker (id, expires_at, info)
VALUES (?, NULL, x'')
ON CONFLICT DO NOTHING;

-- :name suspect
-- Records the suspicious token a worker was given: it gets no second one meanwhile.
UPDATE worker
SET suspect = ?
WHERE id = ?;

-- :name gone
-- A worker that holds leases and never sent a heartbeat counts as gone.
SELECT id
FROM worker
WHERE expires_at IS NULL OR expires_at < ?;

-- :name forget
DELETE FROM worker
WHERE id = ?;

-- :name list
SELECT worker.id, expires_at, (SELECT count(*) FROM token WHERE state = 'leased' AND owner = worker.id), info
FROM worker
WHERE expires_at IS NOT NULL
ORDER BY worker.id;

-- :name names
SELECT id FROM worker WHERE expires_at IS NOT NULL ORDER BY id;
