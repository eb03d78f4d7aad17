-- Removal of whole executions after the retention time. An execution's own row is removed last: as long as
-- anything of it exists, its id is taken and the next call continues.

-- :part delivered
-- Its ending is delivered, which reads the result, its clean-up is no dead letter and continues in no
-- other execution that may still need its state, and no task that it handed over, whose input it owns, is unfinished.
  AND NOT EXISTS (
      SELECT 1 FROM outbox WHERE outbox.id IN (execution.id || '/ended', execution.id || '/cleanup')
  )
  AND NOT EXISTS (SELECT 1 FROM record WHERE record.kind = 'cleanup' AND record.id = execution.id)
  AND NOT EXISTS (
      SELECT 1
      FROM execution AS successor
      WHERE successor.parent = execution.id AND successor.relation IN ('cleanup', 'task')
        AND (successor.ended_at IS NULL
             OR EXISTS (SELECT 1 FROM outbox WHERE outbox.id = successor.id || '/cleanup')
             OR EXISTS (SELECT 1 FROM record WHERE record.kind = 'cleanup' AND record.id = successor.id))
      OFFSET 0  -- asked per row, by the index: as a join it would read all executions that have a parent
  )

-- :name outdated
-- Executions that ended in one of these states past their retention time, oldest ending first. Excluded are those
-- whose ending is not delivered yet, because the delivery reads the result, and those whose clean-up is a dead
-- letter, or continues in another execution that may still need their state. One whose completion is not published
-- stays for seven days more.
SELECT found.number
FROM unnest($1::text[]) AS wanted (state)
CROSS JOIN LATERAL (
    SELECT number, ended_at
    FROM execution
    WHERE execution.state = wanted.state AND ended_at IS NOT NULL AND ended_at < $2
      AND (ended_at < $2 - 604800
           OR NOT EXISTS (SELECT 1 FROM publication WHERE publication.execution = execution.id))
      -- :include delivered
    ORDER BY ended_at
    LIMIT $3
) AS found
ORDER BY found.ended_at, found.number
LIMIT $3;

-- :name removable
-- The same for named executions.
SELECT number
FROM execution
WHERE id = ANY ($1::text[]) AND ended_at IS NOT NULL
  -- :include delivered
;

-- :name lock
-- Those of them that no commit, sweep or other removal has locked. Does not wait. `swept`: nothing is left of it
-- but its history.
WITH mine AS MATERIALIZED (
    SELECT number
    FROM flight
    WHERE number = ANY ($1::bigint[])
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
SELECT number, id, state, created_at, tags, error, coalesce(seq, 0) AS seq,
       number NOT IN (SELECT number FROM mine) AS swept
FROM execution
WHERE number = ANY ($1::bigint[]) AND ended_at IS NOT NULL
  AND (number IN (SELECT number FROM mine)
       OR NOT EXISTS (SELECT 1 FROM flight WHERE flight.number = execution.number))
ORDER BY ended_at, number
FOR UPDATE SKIP LOCKED;

-- :name delete_tags
-- By their whole keys: a common tag has as many rows as there are executions.
DELETE FROM execution_tag
USING unnest($1::text[], $2::text[], $3::float8[], $4::text[]) AS gone (name, value, created_at, execution)
WHERE execution_tag.name = gone.name AND execution_tag.value = gone.value
  AND execution_tag.created_at = gone.created_at AND execution_tag.execution = gone.execution;

-- :name delete_words
DELETE FROM failure_word
USING unnest($1::text[], $2::float8[], $3::text[]) AS gone (word, created_at, execution)
WHERE failure_word.word = gone.word AND failure_word.created_at = gone.created_at
  AND failure_word.execution = gone.execution;

-- Whole executions: swept ones with few events.

-- :name delete_left_of_all
DELETE FROM left_context
WHERE execution = ANY ($1::bigint[]);

-- :name delete_stored_bytes_of_all
DELETE FROM stored_bytes
WHERE execution = ANY (ARRAY(SELECT id FROM execution WHERE number = ANY ($1::bigint[])));

-- :name delete_blob_of_all
DELETE FROM blob
WHERE execution = ANY (ARRAY(SELECT id FROM execution WHERE number = ANY ($1::bigint[])));

-- :name delete_published_value_of_all
DELETE FROM published_value
WHERE execution = ANY (ARRAY(SELECT id FROM execution WHERE number = ANY ($1::bigint[])));

-- :name delete_stream_part_of_all
DELETE FROM stream_part
WHERE execution = ANY (ARRAY(SELECT id FROM execution WHERE number = ANY ($1::bigint[])));

-- :name delete_stream_of_all
DELETE FROM stream
WHERE execution = ANY (ARRAY(SELECT id FROM execution WHERE number = ANY ($1::bigint[])));

-- :name delete_output_of_all
DELETE FROM output
WHERE execution = ANY ($1::bigint[]);

-- :name delete_event_of_all
DELETE FROM event
WHERE execution = ANY ($1::bigint[]);

-- :name delete_execution_of_all
DELETE FROM execution
WHERE number = ANY ($1::bigint[]);

-- One execution, at most so many rows at a time. Returns one row for each removed one.

-- :name delete_token
-- By its key: a claim may move the row meanwhile. Returns the limit keys of those that are leased.
DELETE FROM token
WHERE execution = $1 AND id = ANY (ARRAY(SELECT id FROM token WHERE execution = $1 LIMIT $2))
RETURNING CASE WHEN state = 'leased' THEN limit_key END;

-- :name delete_scope
DELETE FROM scope
WHERE ctid = ANY (ARRAY(SELECT ctid FROM scope WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_barrier
DELETE FROM barrier
WHERE ctid = ANY (ARRAY(SELECT ctid FROM barrier WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_slot
DELETE FROM slot
WHERE ctid = ANY (ARRAY(SELECT ctid FROM slot WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_gate
DELETE FROM gate
WHERE ctid = ANY (ARRAY(SELECT ctid FROM gate WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_left_context
DELETE FROM left_context
WHERE ctid = ANY (ARRAY(SELECT ctid FROM left_context WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_inbox
DELETE FROM inbox
WHERE ctid = ANY (ARRAY(SELECT ctid FROM inbox WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_mailbox
DELETE FROM mailbox
WHERE ctid = ANY (ARRAY(SELECT ctid FROM mailbox WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_machine
DELETE FROM machine
WHERE ctid = ANY (ARRAY(SELECT ctid FROM machine WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_slot_holder
DELETE FROM slot_holder
WHERE ctid = ANY (ARRAY(SELECT ctid FROM slot_holder WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_stored_bytes
DELETE FROM stored_bytes
WHERE execution = ANY (ARRAY(SELECT id FROM execution WHERE number = $1 LIMIT $2))
RETURNING 1;

-- :name delete_blob
DELETE FROM blob
WHERE ctid = ANY (ARRAY(
    SELECT blob.ctid
    FROM execution
    JOIN blob ON blob.execution = execution.id
    WHERE execution.number = $1
    LIMIT $2
))
RETURNING 1;

-- :name delete_published_value
DELETE FROM published_value
WHERE ctid = ANY (ARRAY(
    SELECT published_value.ctid
    FROM execution
    JOIN published_value ON published_value.execution = execution.id
    WHERE execution.number = $1
    LIMIT $2
))
RETURNING 1;

-- :name delete_stream_part
DELETE FROM stream_part
WHERE ctid = ANY (ARRAY(
    SELECT stream_part.ctid
    FROM execution
    JOIN stream_part ON stream_part.execution = execution.id
    WHERE execution.number = $1
    LIMIT $2
))
RETURNING 1;

-- :name delete_stream
DELETE FROM stream
WHERE ctid = ANY (ARRAY(
    SELECT stream.ctid
    FROM execution
    JOIN stream ON stream.execution = execution.id
    WHERE execution.number = $1
    LIMIT $2
))
RETURNING 1;

-- :name delete_output
-- By its key: the position of a row does not identify it across partitions.
DELETE FROM output
WHERE execution = $1 AND id = ANY (ARRAY(SELECT id FROM output WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_event
DELETE FROM event
WHERE execution = $1 AND seq = ANY (ARRAY(SELECT seq FROM event WHERE execution = $1 LIMIT $2))
RETURNING 1;

-- :name delete_flight
DELETE FROM flight
WHERE number = ANY ($1::bigint[]);
