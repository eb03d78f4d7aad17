-- Machines of scripts, their inboxes and mailboxes. The writer knows an execution's number; readers (`…_of`) pass
-- its id. SELECTs of the writer do not read the snapshot: the rules only ever replace it.

-- :name many
-- From a JSON list of execution numbers. Columns as for `one`.
SELECT execution, version, reachable, wake, inbox, read, line, cancel, interrupted, resuming, unread, last_success,
       last_failure, kept
FROM json_each(?) AS wanted
JOIN machine ON machine.execution = wanted.value;

-- :name one
SELECT execution, version, reachable, wake, inbox, read, line, cancel, interrupted, resuming, unread, last_success,
       last_failure, kept
FROM machine
WHERE execution = ?;

-- :name of
SELECT version, snapshot, reachable, wake, inbox, read, line, cancel, interrupted
FROM machine
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?);

-- :name save
-- The end of a run: all columns, including the snapshot.
INSERT INTO machine (execution, version, inbox, read, unread, last_success, last_failure, kept, resuming, cancel,
                     interrupted, line, wake, reachable, snapshot)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, inbox = excluded.inbox, read = excluded.read,
    unread = excluded.unread, last_success = excluded.last_success, last_failure = excluded.last_failure,
    kept = excluded.kept, resuming = excluded.resuming, cancel = excluded.cancel,
    interrupted = excluded.interrupted, line = excluded.line, wake = excluded.wake,
    reachable = excluded.reachable, snapshot = excluded.snapshot;

-- :name count
-- The columns that a completion, a signal or a request changes.
UPDATE machine
SET version = column2, inbox = column3, unread = column4, last_success = column5, last_failure = column6,
    kept = column7, resuming = column8, cancel = column9
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?))
WHERE execution = column1;

-- :name inbox
-- The stored completions, without data.
SELECT promise, number, ok
FROM inbox
WHERE execution = ?;

-- :name inbox_of
SELECT promise, ok, data, number
FROM inbox
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?)
ORDER BY number;

-- :name enter
INSERT INTO inbox (execution, number, promise, ok, data)
VALUES (?, ?, ?, ?, ?);

-- :name remove
DELETE FROM inbox
WHERE (execution, number) IN (VALUES (?, ?));

-- :name clear
-- Everything up to a number: completions that a run has read and no longer needs.
DELETE FROM inbox
WHERE execution = ? AND number <= ?;

-- :name signal
SELECT id, name, data, number, place, taken
FROM mailbox
WHERE execution = ? AND id = ?;

-- :name next_signal
-- The oldest signal of a name that is not taken.
SELECT id, name, data, number, place, taken
FROM mailbox
WHERE execution = ? AND name = ? AND taken = 0
ORDER BY number
LIMIT 1;

-- :name waiting_signals
-- Walks mailbox_waiting, up to the requested number.
SELECT count(*)
FROM (
    SELECT 1
    FROM mailbox INDEXED BY mailbox_waiting
    WHERE execution = (SELECT number FROM flight WHERE flight.id = ?) AND taken = 0
    LIMIT ?
);

-- :name posted
-- Only of one that was taken is the data read: the answer to a request.
SELECT name, number, taken, CASE WHEN taken = 1 THEN data ELSE x'' END
FROM mailbox
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?) AND id = ?;

-- :name unanswered
SELECT id, name, number, taken
FROM mailbox
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?) AND id >= ? AND id < ?
    AND (taken = 0 OR length(data) = 0)
ORDER BY number
LIMIT ?;

-- :name mailbox_of
-- In no order: the reader sorts them by number.
SELECT id, name, data, number, place
FROM mailbox
WHERE execution = (SELECT number FROM flight WHERE flight.id = ?) AND taken = 0;

-- :name save_signal
INSERT INTO mailbox (execution, id, name, number, place, taken, data)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET taken = excluded.taken, data = excluded.data;
