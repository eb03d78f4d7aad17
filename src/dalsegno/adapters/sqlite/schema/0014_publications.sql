-- How far the statuses of an execution are published: the number of the last event that the broker has confirmed. A
-- row exists from the execution's creation until its completion is confirmed. One process publishes at a time: the
-- owner, until its claim expires.
CREATE TABLE publication (
    execution TEXT NOT NULL PRIMARY KEY,
    confirmed INTEGER NOT NULL DEFAULT 0,
    owner     TEXT,
    until     REAL
) WITHOUT ROWID;
