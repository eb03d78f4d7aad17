-- A large blob is stored in several transactions, so that none of them holds up other commits for long. Its row in `blob`
-- comes last and has the first piece; the others are here. Pieces without that row are what a crash has left: the next
-- put of the same content goes on with them, and they go with their execution.
ALTER TABLE blob ADD COLUMN pieces INTEGER NOT NULL DEFAULT 0; -- further ones

CREATE TABLE blob_piece (
    execution TEXT NOT NULL,
    id        TEXT NOT NULL,
    number    INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, id, number)
);
