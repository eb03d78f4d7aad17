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
  )

-- :name outdated
-- Executions that ended in one state past their retention time. Excluded are those whose ending is not delivered
-- yet, because the delivery reads the result, and those whose clean-up is a dead letter, or continues in another
-- execution that may still need their state. With the number of events of those that were swept (the others have
-- none here), and one for each 16 KiB that they have stored: an estimate of how much there is to remove. One whose
-- completion is not published stays for seven days more.
SELECT number, id, state, coalesce(seq + (
    SELECT coalesce(sum(bytes), 0) / 16384 FROM stored_bytes WHERE stored_bytes.execution = execution.id
) + coalesce((
    SELECT length(data) / 16384 FROM large_input WHERE large_input.execution = execution.number
), 0), 0)
FROM execution INDEXED BY execution_by_end
WHERE state = ?1 AND ended_at IS NOT NULL AND ended_at < ?2
  AND (ended_at < ?2 - 604800
       OR NOT EXISTS (SELECT 1 FROM publication WHERE publication.execution = execution.id))
  -- :include delivered
ORDER BY ended_at
LIMIT ?3;

-- :name removable
-- The same for executions named in a JSON list.
SELECT number, execution.id, state, coalesce(seq + (
    SELECT coalesce(sum(bytes), 0) / 16384 FROM stored_bytes WHERE stored_bytes.execution = execution.id
) + coalesce((
    SELECT length(data) / 16384 FROM large_input WHERE large_input.execution = execution.number
), 0), 0)
FROM json_each(?) AS wanted
CROSS JOIN execution ON execution.id = wanted.value
WHERE ended_at IS NOT NULL
  -- :include delivered
;

-- :name tags_of_all
-- The rows of their tags, by a JSON list of numbers.
SELECT json_extract(tag.value, '$[0]'), json_extract(tag.value, '$[1]'), created_at, execution.id
FROM json_each(?) AS wanted
CROSS JOIN execution ON execution.number = wanted.value
CROSS JOIN json_each(execution.tags) AS tag;

-- :name delete_tags
-- By its whole key: a common tag has as many rows as there are executions.
DELETE FROM execution_tag
WHERE name = ? AND value = ? AND created_at = ? AND execution = ?;

-- :name delete_words
DELETE FROM failure_word
WHERE word = ? AND created_at = ? AND execution = ?;

-- Whole executions, named by a JSON list of numbers: swept ones with few events.

-- :name delete_left_of_all
DELETE FROM left_context
WHERE execution IN (SELECT value FROM json_each(?));

-- :name delete_large_input_of_all
DELETE FROM large_input
WHERE execution IN (SELECT value FROM json_each(?));

-- :name delete_output_of_all
DELETE FROM output
WHERE execution IN (SELECT value FROM json_each(?));

-- :name delete_stored_bytes_of_all
DELETE FROM stored_bytes
WHERE execution IN (
    SELECT execution.id
    FROM json_each(?) AS wanted
    CROSS JOIN execution ON execution.number = wanted.value
);

-- :name delete_blob_of_all
DELETE FROM blob
WHERE execution IN (
    SELECT execution.id
    FROM json_each(?) AS wanted
    CROSS JOIN execution ON execution.number = wanted.value
);

-- :name delete_blob_piece_of_all
DELETE FROM blob_piece
WHERE execution IN (
    SELECT execution.id
    FROM json_each(?) AS wanted
    CROSS JOIN execution ON execution.number = wanted.value
);

-- :name delete_published_value_of_all
DELETE FROM published_value
WHERE execution IN (
    SELECT execution.id
    FROM json_each(?) AS wanted
    CROSS JOIN execution ON execution.number = wanted.value
);

-- :name delete_stream_part_of_all
DELETE FROM stream_part
WHERE execution IN (
    SELECT execution.id
    FROM json_each(?) AS wanted
    CROSS JOIN execution ON execution.number = wanted.value
);

-- :name delete_stream_of_all
DELETE FROM stream
WHERE execution IN (
    SELECT execution.id
    FROM json_each(?) AS wanted
    CROSS JOIN execution ON execution.number = wanted.value
);

-- :name delete_event_of_all
DELETE FROM event
WHERE execution IN (SELECT value FROM json_each(?));

-- :name delete_execution_of_all
DELETE FROM execution
WHERE number IN (SELECT value FROM json_each(?));

-- One execution in chunks. Every DELETE takes its number and the most rows it may remove.

-- :name delete_tokens
DELETE FROM token
WHERE execution = :execution
  AND id IN (SELECT id FROM token WHERE execution = :execution LIMIT :limit);

-- :name delete_scope
DELETE FROM scope
WHERE execution = :execution
  AND path IN (SELECT path FROM scope WHERE execution = :execution LIMIT :limit);

-- :name delete_barrier
DELETE FROM barrier
WHERE execution = :execution
  AND id IN (SELECT id FROM barrier WHERE execution = :execution LIMIT :limit);

-- :name delete_slot
DELETE FROM slot
WHERE execution = :execution
  AND (barrier, slot) IN (SELECT barrier, slot FROM slot WHERE execution = :execution LIMIT :limit);

-- :name delete_gate
DELETE FROM gate
WHERE execution = :execution
  AND id IN (SELECT id FROM gate WHERE execution = :execution LIMIT :limit);

-- :name delete_left_context
-- What branches left at the root stays, unless the execution completed: it is part of the final context.
DELETE FROM left_context
WHERE execution = :execution
  AND (scope, key) IN (
      SELECT scope, key
      FROM left_context
      WHERE execution = :execution
        AND (scope <> '' OR (SELECT state FROM execution WHERE number = :execution) = 'COMPLETED')
      LIMIT :limit
  );

-- :name delete_left_at_root
DELETE FROM left_context
WHERE execution = :execution
  AND (scope, key) IN (SELECT scope, key FROM left_context WHERE execution = :execution LIMIT :limit);

-- :name delete_inbox
DELETE FROM inbox
WHERE execution = :execution
  AND number IN (SELECT number FROM inbox WHERE execution = :execution LIMIT :limit);

-- :name delete_mailbox
DELETE FROM mailbox
WHERE execution = :execution
  AND id IN (SELECT id FROM mailbox WHERE execution = :execution LIMIT :limit);

-- :name delete_machine
-- One row; takes a limit only to have the same parameters as the others.
DELETE FROM machine
WHERE execution = :execution AND :limit > 0;

-- :name delete_large_input
-- One row; takes a limit only to have the same parameters as the others.
DELETE FROM large_input
WHERE execution = :execution AND :limit > 0;

-- :name delete_stored_bytes
DELETE FROM stored_bytes
WHERE execution IN (SELECT execution.id FROM execution WHERE execution.number = :execution LIMIT :limit);

-- :name delete_blob
DELETE FROM blob
WHERE rowid IN (
    SELECT blob.rowid
    FROM execution
    JOIN blob ON blob.execution = execution.id
    WHERE execution.number = :execution
    LIMIT :limit
);

-- :name delete_blob_piece
DELETE FROM blob_piece
WHERE rowid IN (
    SELECT blob_piece.rowid
    FROM execution
    JOIN blob_piece ON blob_piece.execution = execution.id
    WHERE execution.number = :execution
    LIMIT :limit
);

-- :name delete_published_value
DELETE FROM published_value
WHERE rowid IN (
    SELECT published_value.rowid
    FROM execution
    JOIN published_value ON published_value.execution = execution.id
    WHERE execution.number = :execution
    LIMIT :limit
);

-- :name delete_stream_part
DELETE FROM stream_part
WHERE rowid IN (
    SELECT stream_part.rowid
    FROM execution
    JOIN stream_part ON stream_part.execution = execution.id
    WHERE execution.number = :execution
    LIMIT :limit
);

-- :name delete_stream
DELETE FROM stream
WHERE (execution, name) IN (
    SELECT stream.execution, stream.name
    FROM execution
    JOIN stream ON stream.execution = execution.id
    WHERE execution.number = :execution
    LIMIT :limit
);

-- :name delete_output
DELETE FROM output
WHERE execution = :execution
  AND id IN (SELECT id FROM output WHERE execution = :execution LIMIT :limit);

-- :name delete_event
DELETE FROM event
WHERE execution = :execution
  AND seq IN (SELECT seq FROM event WHERE execution = :execution LIMIT :limit);

-- :name delete_flight
DELETE FROM flight
WHERE number = :execution;

-- :name delete_execution
DELETE FROM execution
WHERE number = :execution;
