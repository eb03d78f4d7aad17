-- Measures the machine, in a file of its own.

-- :name table
CREATE TABLE raw (
    id   TEXT NOT NULL,
    data TEXT NOT NULL
);

-- :name insert
INSERT INTO raw (id, data)
VALUES (?, ?);
