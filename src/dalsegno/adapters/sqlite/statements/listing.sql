-- Executions, newest first by (created_at, id). One statement per leading filter, so that each walks an index in order
-- and stops after :limit rows; the other filters are checked on the way. (:created_at, :mark) is the last row of the
-- page before. States, kinds, relations and tags are JSON lists; NULL filters nothing, but no kinds: all except schedules.

-- :name newest
-- No leading filter: walks execution_by_age.
SELECT execution_view.*
FROM execution_view
WHERE (created_at, id) < (:created_at, :mark)
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:parent IS NULL OR parent = :parent)
  AND (kind IN (SELECT value FROM json_each(:kinds)) OR (:kinds IS NULL AND kind <> 'schedule'))
  AND (:relations IS NULL OR relation IN (SELECT value FROM json_each(:relations)))
  AND NOT EXISTS (
      SELECT 1
      FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE name = json_extract(wanted.value, '$[0]')
            AND execution_tag.value = json_extract(wanted.value, '$[1]')
            AND execution_tag.created_at = execution_view.created_at
            AND execution_tag.execution = execution_view.id
      )
  )
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- :name of_workflow
-- Walks execution_by_workflow.
SELECT execution_view.*
FROM execution_view
WHERE workflow = :workflow AND (created_at, id) < (:created_at, :mark)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:parent IS NULL OR parent = :parent)
  AND (kind IN (SELECT value FROM json_each(:kinds)) OR (:kinds IS NULL AND kind <> 'schedule'))
  AND (:relations IS NULL OR relation IN (SELECT value FROM json_each(:relations)))
  AND NOT EXISTS (
      SELECT 1
      FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE name = json_extract(wanted.value, '$[0]')
            AND execution_tag.value = json_extract(wanted.value, '$[1]')
            AND execution_tag.created_at = execution_view.created_at
            AND execution_tag.execution = execution_view.id
      )
  )
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- :name in_state
-- For a single state: walks execution_by_state.
SELECT execution_view.*
FROM execution_view
WHERE state = :state AND (created_at, id) < (:created_at, :mark)
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:parent IS NULL OR parent = :parent)
  AND (kind IN (SELECT value FROM json_each(:kinds)) OR (:kinds IS NULL AND kind <> 'schedule'))
  AND (:relations IS NULL OR relation IN (SELECT value FROM json_each(:relations)))
  AND NOT EXISTS (
      SELECT 1
      FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE name = json_extract(wanted.value, '$[0]')
            AND execution_tag.value = json_extract(wanted.value, '$[1]')
            AND execution_tag.created_at = execution_view.created_at
            AND execution_tag.execution = execution_view.id
      )
  )
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- :name of_parent
-- Walks execution_by_parent.
SELECT execution_view.*
FROM execution_view
WHERE parent = :parent AND (created_at, id) < (:created_at, :mark)
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (kind IN (SELECT value FROM json_each(:kinds)) OR (:kinds IS NULL AND kind <> 'schedule'))
  AND (:relations IS NULL OR relation IN (SELECT value FROM json_each(:relations)))
  AND NOT EXISTS (
      SELECT 1
      FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE name = json_extract(wanted.value, '$[0]')
            AND execution_tag.value = json_extract(wanted.value, '$[1]')
            AND execution_tag.created_at = execution_view.created_at
            AND execution_tag.execution = execution_view.id
      )
  )
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- :name tagged
-- Walks the rows of one tag; the others are checked.
SELECT execution_view.*
FROM execution_tag AS leading
JOIN execution_view ON execution_view.id = leading.execution
WHERE leading.name = :tag AND leading.value = :tag_value
  AND (leading.created_at, leading.execution) < (:created_at, :mark)
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:parent IS NULL OR parent = :parent)
  AND (kind IN (SELECT value FROM json_each(:kinds)) OR (:kinds IS NULL AND kind <> 'schedule'))
  AND (:relations IS NULL OR relation IN (SELECT value FROM json_each(:relations)))
  AND NOT EXISTS (
      SELECT 1
      FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE name = json_extract(wanted.value, '$[0]')
            AND execution_tag.value = json_extract(wanted.value, '$[1]')
            AND execution_tag.created_at = execution_view.created_at
            AND execution_tag.execution = execution_view.id
      )
  )
ORDER BY leading.created_at DESC, leading.execution DESC
LIMIT :limit;

-- :name schedules
-- Only schedules: walks execution_schedules, all of which they are.
SELECT execution_view.*
FROM execution AS leading INDEXED BY execution_schedules
JOIN execution_view ON execution_view.id = leading.id
WHERE leading.kind = 'schedule' AND (leading.created_at, leading.id) < (:created_at, :mark)
  AND (:workflow IS NULL OR leading.workflow = :workflow)
  AND (:states IS NULL OR execution_view.state IN (SELECT value FROM json_each(:states)))
  AND (:parent IS NULL OR execution_view.parent = :parent)
  AND (:relations IS NULL OR execution_view.relation IN (SELECT value FROM json_each(:relations)))
  AND NOT EXISTS (
      SELECT 1
      FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (
          SELECT 1
          FROM execution_tag
          WHERE name = json_extract(wanted.value, '$[0]')
            AND execution_tag.value = json_extract(wanted.value, '$[1]')
            AND execution_tag.created_at = execution_view.created_at
            AND execution_tag.execution = execution_view.id
      )
  )
ORDER BY leading.created_at DESC, leading.id DESC
LIMIT :limit;

-- :name awaiting_signal
-- Only those with a node that waits for a signal: walks token_awaiting_signal, and sorts as many ids as there are.
SELECT execution_view.*
FROM (
    SELECT leading.id
    FROM (
        SELECT DISTINCT execution
        FROM token INDEXED BY token_awaiting_signal
        WHERE state = 'parked' AND awaits >= 'signal:' AND awaits < 'signal;'
    ) AS waiting
    CROSS JOIN execution AS leading ON leading.number = waiting.execution
    WHERE (leading.created_at, leading.id) < (:created_at, :mark)
      AND (:workflow IS NULL OR workflow = :workflow)
      AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
      AND (:parent IS NULL OR parent = :parent)
      AND (kind IN (SELECT value FROM json_each(:kinds)) OR (:kinds IS NULL AND kind <> 'schedule'))
      AND (:relations IS NULL OR relation IN (SELECT value FROM json_each(:relations)))
      AND NOT EXISTS (
          SELECT 1
          FROM json_each(:tags) AS wanted
          WHERE NOT EXISTS (
              SELECT 1
              FROM execution_tag
              WHERE name = json_extract(wanted.value, '$[0]')
                AND execution_tag.value = json_extract(wanted.value, '$[1]')
                AND execution_tag.created_at = leading.created_at
                AND execution_tag.execution = leading.id
          )
      )
    ORDER BY leading.created_at DESC, leading.id DESC
    LIMIT :limit
) AS page
CROSS JOIN execution_view ON execution_view.id = page.id
ORDER BY created_at DESC, execution_view.id DESC;

-- :name one
SELECT *
FROM execution_view
WHERE id = ?;

-- :name age
-- Where a page ended.
SELECT created_at
FROM execution
WHERE id = ?;

-- :name states
-- States of the executions named in a JSON list: asked again and again while somebody waits for them to end.
SELECT id, state
FROM execution
WHERE id IN (SELECT value FROM json_each(?));
