-- Definitions: immutable versions, and which one is current. Every change of a name locks its row in
-- definition_name first, so that numbers are assigned one after the other and no removal overlooks a change.

-- :part columns
SELECT definition.name, definition.version, hash, kind, source, created_at

-- :name lock
-- Creates the name's row if needed and locks it; returns its highest version so far.
INSERT INTO definition_name AS known (name)
VALUES ($1)
ON CONFLICT (name) DO UPDATE SET highest = known.highest
RETURNING highest;

-- :name lock_known
-- The same for several names that exist, in one order.
SELECT name, current
FROM definition_name
WHERE name = ANY ($1::text[])
ORDER BY name
FOR UPDATE;

-- :name by_name_and_hash
-- :include columns
FROM definition
WHERE name = $1 AND hash = $2;

-- :name insert
INSERT INTO definition (name, version, hash, kind, source, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING name, version, hash, kind, source, created_at;

-- :name set_current
UPDATE definition_name
SET current = $2, highest = greatest(highest, $2)
WHERE name = $1;

-- :name version
-- :include columns
FROM definition
WHERE name = $1 AND version = $2;

-- :name current
-- :include columns
FROM definition_name
JOIN definition ON definition.name = definition_name.name AND definition.version = definition_name.current
WHERE definition_name.name = $1;

-- :name by_hash
-- :include columns
FROM definition
WHERE hash = $1
ORDER BY created_at, name, version
LIMIT 1;

-- :name page
-- The next names and their current versions; sources, which may be long, are not read. Names that begin with @ were
-- not deployed: messages of other programs carried them.
SELECT definition.name, definition.version, hash, kind, ''::bytea, created_at
FROM definition_name
JOIN definition ON definition.name = definition_name.name AND definition.version = definition_name.current
WHERE definition_name.name > $1 AND (definition_name.name < '@' OR definition_name.name >= 'A')
ORDER BY definition_name.name
LIMIT $2;

-- :name adopted_up_to
-- How many versions have names that begin with @.
SELECT count(*)
FROM (SELECT 1 FROM definition WHERE name >= '@' AND name < 'A' LIMIT $1) AS adopted;

-- :name versions
-- The next versions of a name, newest first; sources are not read.
SELECT name, version, hash, kind, ''::bytea, created_at
FROM definition
WHERE name = $1 AND ($2::integer IS NULL OR version < $2)
ORDER BY version DESC
LIMIT $3::integer;

-- :name version_of
SELECT version
FROM definition
WHERE name = $1 AND hash = $2;

-- :name current_version
SELECT current
FROM definition_name
WHERE name = $1;

-- :name aliased
-- :include columns
FROM definition_alias
JOIN definition ON definition.name = definition_alias.name AND definition.version = definition_alias.version
WHERE definition_alias.name = $1 AND alias = $2;

-- :name set_alias
-- Replaces an earlier target of the alias.
INSERT INTO definition_alias (name, alias, version)
VALUES ($1, $2, $3)
ON CONFLICT (name, alias) DO UPDATE SET version = excluded.version;

-- :name remove_alias
DELETE FROM definition_alias
WHERE name = $1 AND alias = $2
RETURNING alias;

-- :name aliases
SELECT alias, version
FROM definition_alias
WHERE name = $1
ORDER BY alias;

-- :name unfinished_of
-- Some unfinished executions of workflows (of one version), state by state, oldest first.
SELECT found.id
FROM unnest($1::text[]) AS workflow (name)
CROSS JOIN unnest(ARRAY['PENDING', 'RUNNING', 'PAUSED']) AS alive (state)
CROSS JOIN LATERAL (
    SELECT id
    FROM execution
    WHERE execution.workflow = workflow.name AND execution.state = alive.state
      AND ($2::integer IS NULL OR version = $2) AND kind <> 'schedule'
    ORDER BY created_at, id
    LIMIT $3
) AS found
LIMIT $3;

-- :name parts
-- Names of the scripts that are part of a graph: those that begin with its name and a slash ('0' follows '/').
SELECT DISTINCT name
FROM definition
WHERE name > $1::text || '/' AND name < $1::text || '0' AND kind = 'script'
ORDER BY name;

-- :name delete
-- One version of a name, or all versions of several.
DELETE FROM definition
WHERE name = ANY ($1::text[]) AND ($2::integer IS NULL OR version = $2)
RETURNING name;

-- :name forget_current
UPDATE definition_name
SET current = NULL
WHERE name = ANY ($1::text[]);
