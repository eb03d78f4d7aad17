-- Definitions: immutable versions, and which one is current.

-- :name by_name_and_hash
SELECT name, version, hash, kind, source, created_at
FROM definition
WHERE name = ? AND hash = ?;

-- :name insert
-- The next number of this name; the write lock makes it unique.
INSERT INTO definition (name, version, hash, kind, source, created_at)
SELECT :name, coalesce(max(version), 0) + 1, :hash, :kind, :source, :now
FROM definition
WHERE name = :name;

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

-- :name all
SELECT definition.name, definition.version, hash, kind, source, created_at
FROM definition_current
JOIN definition USING (name, version)
ORDER BY definition.name;

-- :name versions
SELECT name, version, hash, kind, source, created_at
FROM definition
WHERE name = ?
ORDER BY version DESC;

-- :name aliased
SELECT definition.name, definition.version, hash, kind, source, created_at
FROM definition_alias
JOIN definition USING (name, version)
WHERE definition_alias.name = ? AND alias = ?;

-- :name set_alias
-- Whatever the alias meant before.
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
