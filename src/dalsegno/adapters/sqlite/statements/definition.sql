-- Definitions: immutable versions, and which one is current.

-- :name by_name_and_hash
SELECT name, version, hash, kind, source, created_at
FROM definition
WHERE name = ? AND hash = ?;

-- :name insert
-- The next number of this name, also after removals; the write lock makes it unique.
INSERT INTO definition (name, version, hash, kind, source, created_at)
SELECT :name,
       max(coalesce((SELECT max(version) FROM definition WHERE name = :name), 0),
           coalesce((SELECT version FROM definition_removed WHERE name = :name), 0)) + 1,
       :hash, :kind, :source, :now;

-- :name set_current
INSERT INTO definition_current (name, version)
VALUES (?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version;

-- :name version
SELECT name, version, hash, kind, source, created_at
FROM definition
WHERE name = ? AND version = ?;

-- :name current
SELECT definition.name, definition.version, hash, kind, source, created_at
FROM definition_current
JOIN definition USING (name, version)
WHERE definition_current.name = ?;

-- :name by_hash
SELECT name, version, hash, kind, source, created_at
FROM definition
WHERE hash = ?
ORDER BY created_at, name, version
LIMIT 1;

-- :name page
-- The next names and their current versions; sources, which may be long, are not read. Names that begin with @ were
-- not deployed: messages of other programs carried them.
SELECT definition_current.name, definition_current.version, hash, kind, x'', created_at
FROM definition_current
JOIN definition USING (name, version)
WHERE definition_current.name > ? AND (definition_current.name < '@' OR definition_current.name >= 'A')
ORDER BY definition_current.name
LIMIT ?;

-- :name adopted_up_to
-- How many versions have names that begin with @.
SELECT count(*)
FROM (SELECT 1 FROM definition WHERE name >= '@' AND name < 'A' LIMIT ?) AS adopted;

-- :name versions
-- The next versions of a name, newest first; sources are not read.
SELECT name, version, hash, kind, x'', created_at
FROM definition
WHERE name = ? AND version < coalesce(?, 9223372036854775807)
ORDER BY version DESC
LIMIT coalesce(?, -1);

-- :name version_of
SELECT version
FROM definition
WHERE name = ? AND hash = ?;

-- :name current_version
SELECT version
FROM definition_current
WHERE name = ?;

-- :name aliased
SELECT definition.name, definition.version, hash, kind, source, created_at
FROM definition_alias
JOIN definition USING (name, version)
WHERE definition_alias.name = ? AND alias = ?;

-- :name set_alias
-- Replaces an earlier target of the alias.
INSERT INTO definition_alias (name, alias, version)
VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version;

-- :name remove_alias
DELETE FROM definition_alias
WHERE name = ? AND alias = ?;

-- :name aliases
SELECT alias, version
FROM definition_alias
WHERE name = ?
ORDER BY alias;

-- :name unfinished_of
-- Some unfinished executions of a workflow (of one version of it), oldest first.
SELECT id
FROM execution INDEXED BY execution_by_workflow
WHERE workflow = :name AND state = :state AND (:version IS NULL OR version = :version)
  AND kind <> 'schedule'
ORDER BY created_at, id
LIMIT :limit;

-- :name parts
-- Names of the scripts that are part of a graph: those that begin with its name and a slash ('0' follows '/').
SELECT DISTINCT name
FROM definition
WHERE name >= :name || '/' AND name < :name || '0' AND kind = 'script';

-- :name remember_removed
INSERT INTO definition_removed (name, version)
SELECT :name, max(version)
FROM definition
WHERE name = :name AND (:version IS NULL OR version = :version)
ON CONFLICT DO UPDATE SET version = max(definition_removed.version, excluded.version);

-- :name delete
DELETE FROM definition
WHERE name = :name AND (:version IS NULL OR version = :version);

-- :name delete_current
DELETE FROM definition_current
WHERE name = ?;
