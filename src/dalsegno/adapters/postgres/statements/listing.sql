-- Executions, newest first by (created_at, id). One statement per leading filter: each walks an index in that
-- order, lane by lane, and stops after so many rows; the other filters are checked on the way. A lane is the part
-- of the index that a walk selects. `count_…` returns how many rows a walk would meet, at most $4: the shortest
-- one is taken.
--
-- Parameters are the same for all walks: $1 since, ($2 until, $3 mark): the last row of the page before, or the
-- end of the requested time; $4 rows at most; $5, $6 the lanes: two columns of names, of which a walk may use one
-- or none; $7 workflow, $8 states, $9 parent, $10 kinds (none: all except schedules), $11 relations, $12 ended
-- since, $13 ended until, $14 and $15 tags, $16 text, and its possible meanings: $17, $18 ids from one to another,
-- $19 workflows, $20 words. NULL filters nothing. Counts take the first six. All of them are planned without
-- bitmaps and with as few sorts as possible (see `snapshot` in store.py).

-- :part lanes
FROM unnest($5::text[], $6::text[]) AS lane (name, state)

-- :part bounds
  AND seen.created_at >= $1
  AND (seen.created_at, seen.id) < ($2, $3)

-- :part checks
  AND ($7::text IS NULL OR seen.workflow = $7)
  AND ($8::text[] IS NULL OR seen.state = ANY ($8))
  AND ($9::text IS NULL OR seen.parent = $9)
  AND (seen.kind = ANY ($10::text[]) OR ($10::text[] IS NULL AND seen.kind <> 'schedule'))
  AND ($11::text[] IS NULL OR seen.relation = ANY ($11))
  AND ($12::float8 IS NULL OR seen.ended_at >= $12)
  AND ($13::float8 IS NULL OR seen.ended_at < $13)
  AND ($14::text[] IS NULL OR NOT EXISTS (
      SELECT 1
      FROM unnest($14::text[], $15::text[]) AS wanted (name, value)
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE execution_tag.name = wanted.name
            AND execution_tag.value = wanted.value
            AND execution_tag.created_at = seen.created_at
            AND execution_tag.execution = seen.id
      )
  ))
  AND ($16::text IS NULL
    OR (seen.id >= $17::text AND seen.id < $18::text)
    OR seen.idempotency_key = $16
    OR seen.workflow = ANY ($19::text[])
    OR EXISTS (
        SELECT 1
        FROM execution_tag
        WHERE execution_tag.value = $16
          AND execution_tag.created_at = seen.created_at
          AND execution_tag.execution = seen.id
    )
    OR ($20::text[] IS NOT NULL AND seen.state = 'FAILED' AND NOT EXISTS (
        SELECT 1
        FROM unnest($20::text[]) AS wanted (word)
        WHERE NOT EXISTS (
            SELECT 1
            FROM failure_word
            WHERE failure_word.word = wanted.word
              AND failure_word.created_at = seen.created_at
              AND failure_word.execution = seen.id
        )
    )))

-- :part newest_first
    ORDER BY seen.created_at DESC, seen.id DESC
    LIMIT $4
) AS found
ORDER BY found.created_at DESC, found.id DESC
LIMIT $4

-- :part walk
SELECT found.created_at, found.id
-- :include lanes
CROSS JOIN LATERAL (
    SELECT seen.created_at, seen.id

-- :part count
SELECT count(*)
FROM (
    SELECT 1
-- :include lanes
    CROSS JOIN LATERAL (
        SELECT 1

-- :part counted
        LIMIT $4
    ) AS met
    LIMIT $4
) AS counted

-- :part from_workflow
    FROM execution AS seen
    WHERE seen.workflow = lane.name AND seen.state = lane.state
-- :include bounds

-- :part from_state
    FROM execution AS seen
    WHERE seen.kind = lane.name AND seen.state = lane.state
-- :include bounds

-- :part from_parent
    FROM execution AS seen
    WHERE seen.parent = lane.name AND seen.state = lane.state
-- :include bounds

-- :part from_relation
    FROM execution AS seen
    WHERE seen.relation = lane.name AND seen.state = lane.state
-- :include bounds

-- :part from_key
    FROM execution AS seen
    WHERE seen.idempotency_key = lane.name
-- :include bounds

-- :part from_id
    FROM execution AS seen
    WHERE seen.id >= lane.name AND seen.id < lane.state
      AND seen.created_at + 0 >= $1 -- the sum keeps the planner from walking all of that time instead
      AND (seen.created_at + 0, seen.id) < ($2, $3)

-- :name newest
-- No leading filter: one lane; its name is ignored.
-- :include walk
    FROM execution AS seen
    WHERE TRUE
-- :include bounds
-- :include checks
    ORDER BY seen.created_at DESC NULLS LAST, seen.id DESC NULLS LAST
    LIMIT $4
) AS found
ORDER BY found.created_at DESC, found.id DESC
LIMIT $4;

-- :name of_workflow
-- :include walk
-- :include from_workflow
-- :include checks
-- :include newest_first
;

-- :name count_of_workflow
-- :include count
-- :include from_workflow
-- :include counted
;

-- :name in_state
-- A lane is one kind and one state.
-- :include walk
-- :include from_state
-- :include checks
-- :include newest_first
;

-- :name count_in_state
-- :include count
-- :include from_state
-- :include counted
;

-- :name of_parent
-- :include walk
-- :include from_parent
-- :include checks
-- :include newest_first
;

-- :name count_of_parent
-- :include count
-- :include from_parent
-- :include counted
;

-- :name in_relation
-- :include walk
-- :include from_relation
-- :include checks
-- :include newest_first
;

-- :name count_in_relation
-- :include count
-- :include from_relation
-- :include counted
;

-- :name of_key
-- The same key may have been used for several workflows.
-- :include walk
-- :include from_key
-- :include checks
-- :include newest_first
;

-- :name count_of_key
-- :include count
-- :include from_key
-- :include counted
;

-- :name of_id
-- By a prefix of the id, from one to another, and sorted: the prefix is long enough to match few.
-- :include walk
-- :include from_id
-- :include checks
-- :include newest_first
;

-- :name count_of_id
-- :include count
-- :include from_id
-- :include counted
;

-- :name ended
-- By the time of the end, and sorted: only used if few have ended in that time.
-- :include walk
    FROM execution AS seen
    WHERE seen.state = lane.state AND seen.ended_at IS NOT NULL
      AND seen.ended_at >= coalesce($12::float8, '-infinity') AND seen.ended_at < coalesce($13::float8, 'infinity')
-- :include bounds
-- :include checks
-- :include newest_first
;

-- :name count_ended
-- Takes the time of the end as the seventh and eighth.
-- :include count
        FROM execution AS seen
        WHERE seen.state = lane.state AND seen.ended_at IS NOT NULL
          AND seen.ended_at >= coalesce($7::float8, '-infinity') AND seen.ended_at < coalesce($8::float8, 'infinity')
-- :include bounds
-- :include counted
;

-- :name tagged
-- Walks the rows of tags: a lane is a name and a value.
-- :include walk
    FROM execution_tag AS tagged
    JOIN execution AS seen ON seen.id = tagged.execution
    WHERE tagged.name = lane.name AND tagged.value = lane.state
      AND tagged.created_at >= $1
      AND (tagged.created_at, tagged.execution) < ($2, $3)
-- :include checks
    ORDER BY tagged.created_at DESC, tagged.execution DESC
    LIMIT $4
) AS found
ORDER BY found.created_at DESC, found.id DESC
LIMIT $4;

-- :name count_tagged
-- :include count
        FROM execution_tag AS tagged
        WHERE tagged.name = lane.name AND tagged.value = lane.state
          AND tagged.created_at >= $1
          AND (tagged.created_at, tagged.execution) < ($2, $3)
-- :include counted
;

-- :name tag_value
-- Walks the rows of one value, in tags of any name. An execution with two such tags is met twice.
-- :include walk
    FROM execution_tag AS tagged
    JOIN execution AS seen ON seen.id = tagged.execution
    WHERE tagged.value = lane.name
      AND tagged.created_at >= $1
      AND (tagged.created_at, tagged.execution) < ($2, $3)
-- :include checks
    ORDER BY tagged.created_at DESC, tagged.execution DESC
    LIMIT $4
) AS found
ORDER BY found.created_at DESC, found.id DESC
LIMIT $4;

-- :name count_tag_value
-- :include count
        FROM execution_tag AS tagged
        WHERE tagged.value = lane.name
          AND tagged.created_at >= $1
          AND (tagged.created_at, tagged.execution) < ($2, $3)
-- :include counted
;

-- :name failed_with
-- Walks the rows of one word of an error; the other words are checked before anything else is read.
-- :include walk
    FROM failure_word AS said
    JOIN execution AS seen ON seen.id = said.execution
    WHERE said.word = lane.name
      AND said.created_at >= $1
      AND (said.created_at, said.execution) < ($2, $3)
      AND NOT EXISTS (
          SELECT 1
          FROM unnest($20::text[]) AS wanted (word)
          WHERE NOT EXISTS (
              SELECT 1
              FROM failure_word
              WHERE failure_word.word = wanted.word
                AND failure_word.created_at = said.created_at
                AND failure_word.execution = said.execution
          )
      )
-- :include checks
    ORDER BY said.created_at DESC, said.execution DESC
    LIMIT $4
) AS found
ORDER BY found.created_at DESC, found.id DESC
LIMIT $4;

-- :name count_failed_with
-- :include count
        FROM failure_word AS said
        WHERE said.word = lane.name
          AND said.created_at >= $1
          AND (said.created_at, said.execution) < ($2, $3)
-- :include counted
;

-- :name rarest_word
-- The word that the fewest errors contain, judged by counting a bounded number of rows of each.
SELECT wanted.word
FROM unnest($1::text[]) WITH ORDINALITY AS wanted (word, place)
CROSS JOIN LATERAL (
    SELECT count(*) AS errors
    FROM (SELECT 1 FROM failure_word WHERE failure_word.word = wanted.word LIMIT $2) AS few
) AS met
ORDER BY met.errors, wanted.place
LIMIT 1;

-- :name awaiting_signal
-- Only those with a node that waits for a signal: walks token_awaiting_signal, and sorts as many ids as there are.
-- :include walk
    FROM (
        SELECT DISTINCT execution
        FROM token
        WHERE state = 'parked' AND awaits >= 'signal:' AND awaits < 'signal;'
    ) AS waiting
    JOIN execution AS seen ON seen.number = waiting.execution
    WHERE TRUE
-- :include bounds
-- :include checks
-- :include newest_first
;

-- :name workflows
-- The different names of workflows that have executions: from each the next greater one, never the rows between.
WITH RECURSIVE known (name) AS (
    (SELECT workflow FROM execution ORDER BY workflow LIMIT 1)
    UNION ALL
    SELECT (SELECT workflow FROM execution WHERE workflow > known.name ORDER BY workflow LIMIT 1)
    FROM known
    WHERE known.name IS NOT NULL
)
SELECT name
FROM known
WHERE name IS NOT NULL;

-- :name views
-- Outlines of executions, such as those of a page, in any order: the columns of `execution_view` with the lengths
-- of the values in place of the values.
SELECT id, workflow, version, definition, state, 'null'::bytea, created_at, touched_at, epoch, live, seq,
       priority, tags, idempotency_key, parent, relation, paused_at, ended_at, NULL::bytea, NULL::bytea, error, kind,
       octet_length(input) + coalesce(octet_length(output), 0) + coalesce(octet_length(context), 0)
FROM execution_view
WHERE id = ANY ($1::text[]);

-- :name age
-- Where a page ended.
SELECT created_at
FROM execution
WHERE id = $1;
