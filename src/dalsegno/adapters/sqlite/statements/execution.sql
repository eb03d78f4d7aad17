-- Executions: the flight row that every commit writes, and the record.

-- :name flight
-- The lock and counters of one execution that is not swept yet. After the number, columns in ExecutionRow's order.
SELECT number, id, state, definition, epoch, seq, live, priority, paused_at, touched_at, ended_at, kind,
       notify
FROM flight
WHERE id = ?;

-- :name flights
-- The same for many, from a JSON list of ids.
SELECT number, flight.id, state, definition, epoch, seq, live, priority, paused_at, touched_at, ended_at,
       kind, notify
FROM json_each(?) AS wanted
JOIN flight ON flight.id = wanted.value;

-- :name record
-- An execution that was swept: it is known to have ended.
SELECT number, id, state, definition, coalesce(epoch, 0), coalesce(seq, 0), coalesce(live, 0), priority, paused_at,
       coalesce(touched_at, 0), ended_at, kind
FROM execution
WHERE id = ?;

-- :name last_number
-- Numbers are assigned in the writer's transaction, one after the other.
SELECT coalesce(max(number), 0)
FROM execution;

-- :name recorded
-- Those of a JSON list of ids that exist, swept or not.
SELECT execution.id
FROM json_each(?) AS wanted
JOIN execution ON execution.id = wanted.value;

-- :name insert_running_flight
-- The usual start. Fails if the execution exists: that is checked before.
INSERT INTO flight (number, id, definition, epoch, seq, live, priority, touched_at, kind, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'RUNNING');

-- :name insert_running_record
INSERT INTO execution (number, id, workflow, version, definition, created_at, priority, tags, input, kind,
                       state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'RUNNING');

-- :name insert_flight
-- A start that waits or has ended already, or one with a parent, a key or a notice.
INSERT INTO flight (number, id, definition, epoch, seq, live, priority, touched_at, kind, state, paused_at,
                    ended_at, notify)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_record
INSERT INTO execution (number, id, workflow, version, definition, created_at, priority, tags, input, kind, state,
                       parent, relation, idempotency_key, paused_at, ended_at, error, context, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- :name insert_tag
INSERT OR IGNORE INTO execution_tag (name, value, created_at, execution)
VALUES (?, ?, ?, ?);

-- :name advance
-- The hot path: counters only, so no index is touched.
UPDATE flight
SET epoch = column2, seq = column3, live = column4, touched_at = column5
FROM (VALUES (?, ?, ?, ?, ?))
WHERE number = column1;

-- :name change_flight
-- A begin, a pause, a resume or the ending.
UPDATE flight
SET state = column2, epoch = column3, seq = column4, live = column5, touched_at = column6, paused_at = column7,
    ended_at = column8
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?))
WHERE number = column1;

-- :name change_record
UPDATE execution
SET state = column2, paused_at = column3, ended_at = column4, output = column5, context = column6, error = column7
FROM (VALUES (?, ?, ?, ?, ?, ?, ?))
WHERE number = column1;

-- :name change_large_record
-- One with large values: a statement that changes many rows copies its parameters several times. Writes also the
-- counters that the sweep would write later, which would copy the values again.
UPDATE execution
SET state = ?, paused_at = ?, ended_at = ?, output = ?, context = ?, error = ?, epoch = ?, seq = ?, live = ?,
    touched_at = ?
WHERE number = ?;

-- :name reserve_large_input
-- Its bytes are written into the row afterwards, without a copy of them.
INSERT INTO large_input (execution, data)
VALUES (?, zeroblob(?));

-- :name replace_input
-- A trigger may replace the submitted input; the execution has not begun.
UPDATE execution
SET input = ?
WHERE number = ?;

-- :name change_version
-- A script goes on with another version of its program; see change_definition.
UPDATE execution
SET version = ?, definition = ?
WHERE number = ?;

-- :name change_definition
UPDATE flight
SET definition = ?
WHERE number = ?;

-- :name replace_tags
-- All tags of an execution; the index rows are changed separately.
UPDATE execution
SET tags = ?
WHERE number = ?;

-- :name drop_tag
-- By its whole key: a common tag has as many rows as there are executions.
DELETE FROM execution_tag
WHERE name = ?1 AND value = ?2
  AND created_at = (SELECT created_at FROM execution WHERE number = ?3)
  AND execution = (SELECT id FROM execution WHERE number = ?3);

-- :name add_tag
INSERT OR IGNORE INTO execution_tag (name, value, created_at, execution)
SELECT ?1, ?2, created_at, id
FROM execution
WHERE number = ?3;

-- :name untouched
-- Walks the flight rows by id; only unfinished executions and those not swept yet are there. A last row has the
-- cursor of the next page.
WITH looked AS MATERIALIZED (
    SELECT id, ended_at, touched_at
    FROM flight
    WHERE id > ?
    ORDER BY id
    LIMIT ?
)
SELECT id, 1
FROM looked
WHERE ended_at IS NULL AND touched_at < ?
UNION ALL
SELECT max(id), 0
FROM looked
HAVING count(*) = ?;

-- All of a file. Reads an index from end to end.
-- :name count
SELECT count(*) FROM execution;
