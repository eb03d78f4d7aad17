-- Whether the store can be reached, and takes writes. Nothing is read from a table.

-- :name writable
-- A standby answers false, too: what it does is read-only. Whatever else makes it so is a setting.
SELECT current_setting('transaction_read_only') = 'off', pg_is_in_recovery();
