-- Signals among completions: a race is decided by what came first.

ALTER TABLE mailbox ADD COLUMN inbox INTEGER NOT NULL DEFAULT 0; -- number of the newest completion when it came
