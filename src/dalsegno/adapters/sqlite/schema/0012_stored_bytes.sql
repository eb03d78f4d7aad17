-- The turn of a script that put a blob for its snapshot; NULL if something else refers to it, too. Blobs of
-- earlier turns are deleted when the script's present snapshot does not name them.
ALTER TABLE blob ADD COLUMN turn INTEGER;

-- Bytes that count towards the limit of an execution. A blob may be put before its execution is committed.
CREATE TABLE stored_bytes (
    execution TEXT NOT NULL PRIMARY KEY,
    bytes     INTEGER NOT NULL
) WITHOUT ROWID;
