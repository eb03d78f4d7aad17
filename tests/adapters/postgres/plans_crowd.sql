-- Rows as a system has them that ran for ten days: its history, a tenth as many ended executions, $running
-- unfinished ones with all that belongs to them. Numbers of executions are those of partitions.py: the day, then a count.
-- Every eleventh is of a day that has no partition. What is written here is never run: it is what plans are made for.

INSERT INTO execution (number, id, workflow, version, definition, kind, state, created_at, priority, parent, relation,
                       idempotency_key, ended_at, epoch, seq, live, touched_at, tags, error, output, input)
SELECT (($today - n % 11)::bigint << 40) + n, lpad(to_hex(n), 12, '0') || left(md5(n::text), 20), 'workflow-' || n % 100,
       1, md5((n % 100)::text), (ARRAY['graph', 'graph', 'script', 'python'])[n % 4 + 1],
       CASE n % 10 WHEN 0 THEN 'FAILED' WHEN 1 THEN 'CANCELLED' ELSE 'COMPLETED' END,
       $now - 864000.0 * n / $ended, 0, CASE WHEN n % 20 = 0 THEN md5((n / 2)::text) END,
       CASE WHEN n % 20 = 0 THEN 'child' END, CASE WHEN n % 10 = 0 THEN 'key-' || n END,
       $now - 864000.0 * n / $ended + 30, 0, 10, 0, $now - 864000.0 * n / $ended + 30, '[]',
       CASE WHEN n % 10 = 0 THEN '{"message": "charge failed"}'::bytea END, '1', '{}'
FROM generate_series(1, $ended) AS n;

INSERT INTO event (execution, seq, kind, node, scope, at, token)
SELECT (($today - n % 11)::bigint << 40) + n, seq, 'NodeCompleted', 'charge', '', $now - 864000.0 * n / $ended + seq,
       'token-' || seq
FROM generate_series(1, $ended) AS n, generate_series(1, 10) AS seq;

INSERT INTO output (execution, id, data)
SELECT (($today - n % 11)::bigint << 40) + n, 'charge-' || place, '1234567890'
FROM generate_series(1, $ended) AS n, generate_series(1, 3) AS place;

INSERT INTO execution_tag (name, value, created_at, execution)
SELECT tag, 'v' || n % 1000, $now - 864000.0 * n / $ended, lpad(to_hex(n), 12, '0') || left(md5(n::text), 20)
FROM generate_series(1, $ended, 2) AS n, unnest(ARRAY['customer', 'env']) AS tag;

INSERT INTO failure_word (word, created_at, execution)
SELECT 'w' || (n + place * 7) % 400, $now - 864000.0 * n / $ended, lpad(to_hex(n), 12, '0') || left(md5(n::text), 20)
FROM generate_series(10, $ended, 10) AS n, generate_series(1, 6) AS place;

INSERT INTO blob (execution, id, data)
SELECT lpad(to_hex(n), 12, '0') || left(md5(n::text), 20), md5(n::text), 'large'
FROM generate_series(1, $ended, 2) AS n;

INSERT INTO stored_bytes (execution, bytes)
SELECT id, 4096 FROM execution;

-- Unfinished ones, numbered after all others; every hundredth has ended and is still to be swept.

INSERT INTO execution (number, id, workflow, version, definition, kind, state, created_at, priority, ended_at, tags, input)
SELECT ($today::bigint << 40) + $ended + n, lpad(to_hex($ended + n), 12, '0') || left(md5(n::text), 20),
       'workflow-' || n % 100, 1, md5((n % 100)::text), (ARRAY['graph', 'script'])[n % 2 + 1],
       CASE WHEN n % 100 = 0 THEN 'COMPLETED' WHEN n % 10 = 0 THEN 'PAUSED' WHEN n % 7 = 0 THEN 'PENDING' ELSE 'RUNNING' END,
       $now - n * 0.001, 0, CASE WHEN n % 100 = 0 THEN $now END, '[]', '{}'
FROM generate_series(1, $running) AS n;

INSERT INTO flight (number, id, state, definition, epoch, seq, live, priority, touched_at, ended_at, kind)
SELECT number, id, state, definition, 0, 10, 1, 0, created_at, ended_at, kind
FROM execution
WHERE number > ($today::bigint << 40) + $ended;

-- One parked token each, tombstones of five steps before it, and some that are ready or leased.

INSERT INTO token (execution, id, state, scope, kind, node, queue, priority, live, ready_at, data, due, awaits)
SELECT number, 'parked', 'parked', '', 'node', 'sleep', 'default', 0, true, 0, '', $now + number % 1000000,
       CASE WHEN number % 10 = 0 THEN 'signal:go' WHEN number % 10 = 1 THEN 'promise:1' END
FROM flight;

INSERT INTO token (execution, id, state, scope, kind, node, queue, priority, live, ready_at, data)
SELECT number, 'past-' || place, 'consumed', '', 'node', 'charge', 'default', 0, true, 0, ''
FROM flight, generate_series(1, 5) AS place;

INSERT INTO token (execution, id, state, scope, kind, node, queue, priority, live, ready_at, turn, losses, data, limit_key,
                   owner)
SELECT number, 'next', CASE WHEN number % 40 < 10 THEN 'leased' ELSE 'ready' END, '', 'node', 'charge',
       'queue-' || number % 5, number % 3, true, $now - number % 1000, number, CASE WHEN number % 1000 = 0 THEN 3 ELSE 0 END,
       '', CASE WHEN number % 4 = 0 THEN 'key-' || number % 1000 END,
       CASE WHEN number % 40 < 10 THEN 'worker-' || number % 8 END
FROM flight
WHERE number % 5 = 0;

INSERT INTO scope (execution, path, barrier, slot, live, ended)
SELECT number, 'each[' || place || ']', 'each', place, 1, false FROM flight, generate_series(0, 1) AS place;

INSERT INTO barrier (execution, id, scope, node, mode, expected, join_token, state, resolved, live)
SELECT number, 'each', '', 'all', 'all', 2, 'parked', 'waiting', 0, 2 FROM flight;

INSERT INTO slot (execution, barrier, slot, live, data)
SELECT number, 'each', place, true, '1' FROM flight, generate_series(0, 1) AS place;

INSERT INTO gate (execution, id, count, used) SELECT number, 'gate', 1, '[]' FROM flight;

INSERT INTO left_context (execution, scope, key, data)
SELECT number, scope, 'name', '1' FROM flight, unnest(ARRAY['', 'each[0]']) AS scope;

INSERT INTO machine (execution, version, inbox, read, unread, last_success, last_failure, kept, resuming, cancel,
                     interrupted, line, wake, reachable, snapshot)
SELECT number, 1, 1, 0, 1, 0, 0, 1, false, '', false, 1, '{}', '[]', 'snapshot' FROM flight;

INSERT INTO inbox (execution, number, promise, ok, data) SELECT number, 1, 1, true, '1' FROM flight;

INSERT INTO mailbox (execution, id, name, number, place, taken, data)
SELECT number, 'signal', 'go', 1, 1, number % 2 = 0, '1' FROM flight;

INSERT INTO publication (execution, confirmed) SELECT id, 1 FROM flight;

INSERT INTO slot_holder (key, execution) SELECT 'key-' || number % 1000, number FROM flight;

INSERT INTO outbox (id, execution, topic, data) SELECT id || '/ended', id, 'ended', '{}' FROM flight;

-- Limits, and what people have set up.

INSERT INTO line (queue, key, priority, turn_at, turn, shut, opens_at)
SELECT 'queue-' || n % 5, 'key-' || n, n % 3, $now, n, n % 20 > 0, CASE WHEN n % 9 = 0 THEN $now + n END
FROM generate_series(1, $settings) AS n;

INSERT INTO limit_rule (key, concurrency, changed_at) SELECT 'key-' || n, 5, $now FROM generate_series(1, $settings) AS n;

INSERT INTO limit_start (key, number, at, stale_at)
SELECT 'key-' || n % 1000, n, $now, $now + 60 FROM generate_series(1, $settings) AS n;

INSERT INTO definition (name, version, hash, kind, created_at, source)
SELECT 'workflow-' || n / 3, n % 3, md5(n::text), 'graph', $now - n, '{}' FROM generate_series(1, $settings) AS n;

INSERT INTO definition_name (name, current, highest) SELECT DISTINCT name, 1, 2 FROM definition;

INSERT INTO definition_alias (name, alias, version) SELECT name, 'stable', 1 FROM definition_name;

INSERT INTO record (kind, id, version, created_at, changed_at, data)
SELECT 'credential', 'record-' || n, 1, $now, $now, '{}' FROM generate_series(1, $settings) AS n;

INSERT INTO log (name, newest) SELECT 'log-' || n, $settings FROM generate_series(1, 3) AS n;

INSERT INTO log_entry (log, number, at, data)
SELECT 'log-' || n % 3, n, $now, '{}' FROM generate_series(1, $settings) AS n;

INSERT INTO worker (id, expires_at, info) SELECT 'worker-' || n, $now + 60, '{}' FROM generate_series(1, 8) AS n;

INSERT INTO published_value (execution, key, data, version, at)
SELECT id, key, '1', 1, created_at FROM execution, unnest(ARRAY['progress', 'stage']) AS key;

INSERT INTO stream (execution, name, length, bytes, closed, token, fence)
SELECT id, 'answer', 20, 200, true, '', 0 FROM execution;

INSERT INTO stream_part (execution, stream, first, count, at, task, attempt, restarts, data)
SELECT id, 'answer', first, 10, created_at, '', 0, false, '[1]' FROM execution, generate_series(0, 10, 10) AS first;
