-- A large blob is stored in several transactions, so that none of them blocks other commits for long. Its row in
-- `blob` is written last and has the first piece; the others are here. Pieces without that row are left by a
-- crash: the next put of the same content continues with them, and they are removed with their execution.
ALTER TABLE blob ADD COLUMN pieces INTEGER NOT NULL DEFAULT 0; -- further ones

CREATE TABLE blob_piece (
    execution TEXT NOT NULL,
    id        TEXT NOT NULL,
    number    INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, id, number)
);
