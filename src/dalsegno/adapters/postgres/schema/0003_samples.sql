-- stage: pre
--
-- PostgreSQL samples these tables for its statistics whenever a tenth of a table has changed. With the usual
-- sample size that keeps a core busy for about a second per table, once a minute while many executions start, and
-- delays due work. Our statements look rows up by keys and walk indexes in their order, for which a small sample
-- tells the planner as much.
--
-- A partition does not inherit this setting: it is copied when the partition is created.

DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT pg_class.oid::regclass AS place, attname AS name
        FROM pg_class
        JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
        WHERE relnamespace = 'dalsegno'::regnamespace
          AND relname IN ('execution', 'flight', 'token', 'event', 'output', 'scope', 'barrier', 'slot', 'gate',
                          'left_context', 'machine', 'inbox', 'mailbox')
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 10', one.place, one.name);
    END LOOP;
END
$$;

ALTER INDEX token_ready ALTER COLUMN 2 SET STATISTICS 10;
ALTER INDEX token_in_line ALTER COLUMN 3 SET STATISTICS 10;
