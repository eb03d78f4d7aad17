-- stage: pre
--
-- How far the statuses of an execution are published: the number of the last event that the broker has confirmed. A
-- row exists from the execution's creation until its completion is confirmed. One process publishes at a time: the
-- owner, until its claim expires.
CREATE TABLE publication (
    execution text COLLATE "C" NOT NULL PRIMARY KEY,
    confirmed integer NOT NULL DEFAULT 0,
    owner     text COLLATE "C",
    until     float8
) WITH (fillfactor = 50);
