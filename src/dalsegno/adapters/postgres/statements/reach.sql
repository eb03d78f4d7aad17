-- Checks that the store can be reached, and takes writes. Nothing is read from a table.

-- :name writable
-- False also on a standby, whose transactions are read-only. Any other reason is a setting.
SELECT current_setting('transaction_read_only') = 'off', pg_is_in_recovery();
