-- Executions, newest first by (created_at, id). One statement per leading filter: each walks an index in that
-- order and stops after :limit rows; the other filters are checked on the way. A list of states or kinds is one
-- walk for each, merged by the caller; (:lane_name, :lane_state) select the walk's part of the index, for a tag
-- its name and value. (:until, :mark) is the last row of the page before, or the end of the requested time.
-- States, kinds, relations, tags, words and names are JSON lists; NULL filters nothing, but no kinds: all except
-- schedules. `count_…` returns how many rows a walk would meet, at most :most: the shortest one is taken.

-- :part bounds
  AND leading.created_at >= :since
  AND (leading.created_at, leading.id) < (:until, :mark)

-- :part checks
  AND (:workflow IS NULL OR leading.workflow = :workflow)
  AND (:states IS NULL OR leading.state IN (SELECT value FROM json_each(:states)))
  AND (:parent IS NULL OR leading.parent = :parent)
  AND (leading.kind IN (SELECT value FROM json_each(:kinds)) OR (:kinds IS NULL AND leading.kind <> 'schedule'))
  AND (:relations IS NULL OR leading.relation IN (SELECT value FROM json_each(:relations)))
  AND (:ended_since IS NULL OR leading.ended_at >= :ended_since)
  AND (:ended_until IS NULL OR leading.ended_at < :ended_until)
  AND (:tags IS NULL OR NOT EXISTS (
      SELECT 1
      FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE execution_tag.name = json_extract(wanted.value, '$[0]')
            AND execution_tag.value = json_extract(wanted.value, '$[1]')
            AND execution_tag.created_at = leading.created_at
            AND execution_tag.execution = leading.id
      )
  ))
  AND (:text IS NULL
    OR (leading.id >= :first_id AND leading.id < :last_id)
    OR leading.idempotency_key = :text
    OR leading.workflow IN (SELECT value FROM json_each(:named))
    OR EXISTS (
        SELECT 1
        FROM json_each(leading.tags) AS tag
        WHERE json_extract(tag.value, '$[1]') = :text
    )
    OR (:words IS NOT NULL AND leading.state = 'FAILED' AND NOT EXISTS (
        SELECT 1
        FROM json_each(:words) AS wanted
        WHERE NOT EXISTS (
            SELECT 1
            FROM failure_word
            WHERE failure_word.word = wanted.value
              AND failure_word.created_at = leading.created_at
              AND failure_word.execution = leading.id
        )
    )))

-- :part newest_first
ORDER BY leading.created_at DESC, leading.id DESC
LIMIT :limit

-- :part from_newest
FROM execution AS leading INDEXED BY execution_by_age
WHERE TRUE
-- :include bounds

-- :part from_workflow
FROM execution AS leading INDEXED BY execution_by_workflow
WHERE leading.workflow = :lane_name AND leading.state = :lane_state
-- :include bounds

-- :part from_state
FROM execution AS leading INDEXED BY execution_by_state
WHERE leading.state = :lane_state AND leading.kind = :lane_name
-- :include bounds

-- :part from_parent
FROM execution AS leading INDEXED BY execution_by_parent
WHERE leading.parent = :parent AND leading.state = :lane_state
-- :include bounds

-- :part from_relation
FROM execution AS leading INDEXED BY execution_by_relation
WHERE leading.relation = :lane_name AND leading.state = :lane_state
-- :include bounds

-- :part from_key
FROM execution AS leading INDEXED BY execution_by_key
WHERE leading.idempotency_key = :text
-- :include bounds

-- :part from_end
FROM execution AS leading INDEXED BY execution_by_end
WHERE leading.state = :lane_state AND leading.ended_at >= :ended_from AND leading.ended_at < :ended_to

-- :part from_id
FROM execution AS leading INDEXED BY sqlite_autoindex_execution_1
WHERE leading.id >= :first_id AND leading.id < :last_id

-- :name newest
-- No leading filter.
SELECT leading.created_at, leading.id
-- :include from_newest
-- :include checks
-- :include newest_first
;

-- :name of_workflow
SELECT leading.created_at, leading.id
-- :include from_workflow
-- :include checks
-- :include newest_first
;

-- :name count_of_workflow
SELECT count(*)
FROM (SELECT 1
-- :include from_workflow
LIMIT :most);

-- :name in_state
-- One state and one kind.
SELECT leading.created_at, leading.id
-- :include from_state
-- :include checks
-- :include newest_first
;

-- :name count_in_state
SELECT count(*)
FROM (SELECT 1
-- :include from_state
LIMIT :most);

-- :name of_parent
SELECT leading.created_at, leading.id
-- :include from_parent
-- :include checks
-- :include newest_first
;

-- :name count_of_parent
SELECT count(*)
FROM (SELECT 1
-- :include from_parent
LIMIT :most);

-- :name in_relation
SELECT leading.created_at, leading.id
-- :include from_relation
-- :include checks
-- :include newest_first
;

-- :name count_in_relation
SELECT count(*)
FROM (SELECT 1
-- :include from_relation
LIMIT :most);

-- :name of_key
-- The same key may have been used for several workflows.
SELECT leading.created_at, leading.id
-- :include from_key
-- :include checks
-- :include newest_first
;

-- :name count_of_key
SELECT count(*)
FROM (SELECT 1
-- :include from_key
LIMIT :most);

-- :name ended
-- By the time of the end, and sorted: only used if few have ended in that time.
SELECT leading.created_at, leading.id
-- :include from_end
-- :include bounds
-- :include checks
-- :include newest_first
;

-- :name count_ended
SELECT count(*)
FROM (SELECT 1
-- :include from_end
LIMIT :most);

-- :name of_id
-- By a prefix of the id, and sorted: the prefix is long enough to match few.
SELECT leading.created_at, leading.id
-- :include from_id
-- :include bounds
-- :include checks
-- :include newest_first
;

-- :name count_of_id
SELECT count(*)
FROM (SELECT 1
-- :include from_id
LIMIT :most);

-- :name tagged
-- Walks the rows of one tag.
SELECT leading.created_at, leading.id
FROM execution_tag AS tagged INDEXED BY sqlite_autoindex_execution_tag_1
CROSS JOIN execution AS leading ON leading.id = tagged.execution
WHERE tagged.name = :lane_name AND tagged.value = :lane_state
  AND tagged.created_at >= :since
  AND (tagged.created_at, tagged.execution) < (:until, :mark)
-- :include checks
ORDER BY tagged.created_at DESC, tagged.execution DESC
LIMIT :limit;

-- :name count_tagged
SELECT count(*)
FROM (
    SELECT 1
    FROM execution_tag
    WHERE name = :lane_name AND value = :lane_state
      AND created_at >= :since AND (created_at, execution) < (:until, :mark)
    LIMIT :most
);

-- :name tag_value
-- Walks the rows of one value, in tags of any name. An execution with two such tags is met twice.
SELECT leading.created_at, leading.id
FROM execution_tag AS tagged INDEXED BY execution_tag_by_value
CROSS JOIN execution AS leading ON leading.id = tagged.execution
WHERE tagged.value = :text
  AND tagged.created_at >= :since
  AND (tagged.created_at, tagged.execution) < (:until, :mark)
-- :include checks
ORDER BY tagged.created_at DESC, tagged.execution DESC
LIMIT :limit;

-- :name count_tag_value
SELECT count(*)
FROM (
    SELECT 1
    FROM execution_tag INDEXED BY execution_tag_by_value
    WHERE value = :text AND created_at >= :since AND (created_at, execution) < (:until, :mark)
    LIMIT :most
);

-- :name failed_with
-- Walks the rows of one word of an error; the other words are checked before anything else is read.
SELECT leading.created_at, leading.id
FROM failure_word AS said INDEXED BY sqlite_autoindex_failure_word_1
CROSS JOIN execution AS leading ON leading.id = said.execution
WHERE said.word = :lane_name
  AND said.created_at >= :since
  AND (said.created_at, said.execution) < (:until, :mark)
  AND NOT EXISTS (
      SELECT 1
      FROM json_each(:words) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM failure_word
          WHERE failure_word.word = wanted.value
            AND failure_word.created_at = said.created_at
            AND failure_word.execution = said.execution
      )
  )
-- :include checks
ORDER BY said.created_at DESC, said.execution DESC
LIMIT :limit;

-- :name count_failed_with
SELECT count(*)
FROM (
    SELECT 1
    FROM failure_word
    WHERE word = :lane_name AND created_at >= :since AND (created_at, execution) < (:until, :mark)
    LIMIT :most
);

-- :name awaiting_signal
-- Only those with a node that waits for a signal: walks token_awaiting_signal, and sorts as many ids as there are.
SELECT leading.created_at, leading.id
FROM (
    SELECT DISTINCT execution
    FROM token INDEXED BY token_awaiting_signal
    WHERE state = 'parked' AND awaits >= 'signal:' AND awaits < 'signal;'
) AS waiting
CROSS JOIN execution AS leading ON leading.number = waiting.execution
WHERE TRUE
-- :include bounds
-- :include checks
-- :include newest_first
;

-- :name workflows
-- The different names of workflows that have executions: from each the next greater one, never the rows between.
WITH RECURSIVE known (name) AS (
    SELECT (SELECT workflow FROM execution INDEXED BY execution_by_workflow ORDER BY workflow LIMIT 1)
    UNION ALL
    SELECT (
        SELECT workflow
        FROM execution INDEXED BY execution_by_workflow
        WHERE workflow > known.name
        ORDER BY workflow
        LIMIT 1
    )
    FROM known
    WHERE known.name IS NOT NULL
)
SELECT name
FROM known
WHERE name IS NOT NULL;

-- :part outline
-- The columns of `one`, with the lengths of the values in place of the values, which are not read.
SELECT seen.id, seen.workflow, seen.version, seen.definition, seen.state, CAST('null' AS BLOB), seen.created_at,
       seen.touched_at, seen.epoch, seen.live, seen.seq, seen.priority, seen.tags, seen.idempotency_key, seen.parent,
       seen.relation, seen.paused_at, seen.ended_at, NULL, NULL, seen.error, seen.kind,
       seen.input_bytes + coalesce(length(seen.output), 0) + coalesce(length(seen.context), 0)

-- :name views
-- Outlines of the executions of a page, in any order.
-- :include outline
FROM json_each(?) AS wanted
CROSS JOIN execution_view AS seen ON seen.id = wanted.value;

-- :name outline
-- :include outline
FROM execution_view AS seen
WHERE seen.id = ?;

-- :name one
-- In the order of ExecutionView's fields. An input or output of more than :large bytes is left out and read piece
-- by piece; its length follows.
SELECT id, workflow, version, definition, state, CASE WHEN input_bytes <= :large THEN input END, created_at,
       touched_at, epoch, live, seq, priority, tags, idempotency_key, parent, relation, paused_at, ended_at,
       CASE WHEN length(output) <= :large THEN output END, context, error, kind, input_bytes,
       coalesce(length(output), 0)
FROM execution_view
WHERE id = :execution;

-- :name number
-- And whether its input is a row of its own.
SELECT number, EXISTS (SELECT 1 FROM large_input WHERE large_input.execution = number)
FROM execution
WHERE id = ?;

-- :name age
-- Where a page ended.
SELECT created_at
FROM execution
WHERE id = ?;
