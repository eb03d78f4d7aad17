-- Partitions of history by the day.

-- :name names
-- The partitions of a table, by name.
SELECT child.relname
FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = $1::text::regclass
ORDER BY child.relname;

-- :name samples
-- Columns of a table with a statistics target of their own.
SELECT quote_ident(attname), attstattarget
FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attstattarget >= 0
ORDER BY attnum;

-- :name survivor
-- True if any execution with these numbers stays after the removal of these states before this moment.
SELECT EXISTS (
    SELECT 1
    FROM execution
    WHERE number >= $1 AND number < $2
      AND (ended_at IS NULL OR ended_at >= $3 OR NOT state = ANY ($4::text[])
           OR id IN (SELECT record.id FROM record WHERE record.kind = 'cleanup'))
);

-- :name any_in
SELECT EXISTS (SELECT 1 FROM execution WHERE number >= $1 AND number < $2);

-- :name any_in_other
-- True if history of executions with these numbers is in the default partitions.
SELECT EXISTS (SELECT 1 FROM event_other WHERE execution >= $1 AND execution < $2)
    OR EXISTS (SELECT 1 FROM output_other WHERE execution >= $1 AND execution < $2);

-- :name outer_numbers_in_other
-- The smallest and the largest number of executions whose history is there. By qualified names: the doctor's
-- connection has no search path.
SELECT min(least_of_each), max(largest_of_each)
FROM (
    SELECT min(execution), max(execution) FROM dalsegno.event_other
    UNION ALL
    SELECT min(execution), max(execution) FROM dalsegno.output_other
) AS found (least_of_each, largest_of_each);

-- :name ownership
-- The owner of the history tables, and this role's rights on them; of the two the one that it does not own. By
-- qualified names, as above.
SELECT quote_ident(current_user) AS role, quote_ident(owner.rolname) AS owner, owner.rolsuper AS owner_is_superuser,
       pg_has_role(relowner, 'USAGE') AS owns, has_schema_privilege('dalsegno', 'CREATE') AS creates,
       has_table_privilege(pg_class.oid, 'INSERT') AS writes
FROM pg_class
JOIN pg_roles AS owner ON owner.oid = relowner
WHERE pg_class.oid IN ('dalsegno.event'::regclass, 'dalsegno.output'::regclass)
ORDER BY owns, relname
LIMIT 1;
