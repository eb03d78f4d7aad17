-- Signals among completions: a race is decided by the first arrival.

ALTER TABLE mailbox ADD COLUMN place INTEGER NOT NULL DEFAULT 0; -- the number it took in the inbox when it came
