-- What every effect needs: time, history, counters, tokens that come and wake.
-- All functions here work on an execution whose flight row the caller has locked.

-- The database's clock; tests give a time instead.
CREATE OR REPLACE FUNCTION ds_now(given float8) RETURNS float8 LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, extract(epoch FROM clock_timestamp())::float8)
$$;

-- Records events under the next numbers of their execution (L8).
CREATE OR REPLACE FUNCTION ds_record(INOUT work ds_work, events ds_new_event[],
                                     arrived integer DEFAULT NULL, expected integer DEFAULT NULL)
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO event (execution, seq, kind, node, scope, at, token, arrived, expected, data)
    SELECT work.execution, work.seq + nth, e.kind, e.node, e.scope, e.at, e.token, arrived, expected, e.data
    FROM unnest(events) WITH ORDINALITY AS e(kind, node, scope, at, data, token, nth);
    work.seq := work.seq + cardinality(events);
END $$;

-- Notes a change of a scope's live count. The root's is the execution's own.
CREATE OR REPLACE FUNCTION ds_count(INOUT work ds_work, scope text, delta integer) LANGUAGE plpgsql AS $$
BEGIN
    IF scope = '' THEN
        work.live := work.live + delta;
    ELSE
        work.scopes := work.scopes || scope;
        work.deltas := work.deltas || delta;
    END IF;
END $$;

-- Writes the noted changes: each scope's row once.
CREATE OR REPLACE FUNCTION ds_write_counts(INOUT work ds_work) LANGUAGE plpgsql AS $$
DECLARE
    change record;
BEGIN
    IF cardinality(work.scopes) = 0 THEN
        RETURN;
    END IF;
    IF cardinality(work.scopes) = 1 THEN
        UPDATE scope SET live = live + work.deltas[1] WHERE execution = work.execution AND path = work.scopes[1];
    ELSE
        FOR change IN
            SELECT path, sum(delta)::integer AS delta FROM unnest(work.scopes, work.deltas) AS noted(path, delta)
            GROUP BY path HAVING sum(delta) <> 0
        LOOP
            UPDATE scope SET live = live + change.delta WHERE execution = work.execution AND path = change.path;
        END LOOP;
    END IF;
    work.scopes := '{}';
    work.deltas := '{}';
END $$;

CREATE OR REPLACE FUNCTION ds_note_due(INOUT work ds_work, due float8) LANGUAGE plpgsql AS $$
BEGIN
    work.next_due := least(work.next_due, due);
END $$;

-- Adds new tokens in one statement; an id that exists is left alone (L3). They are parked until their due time,
-- held while the execution is paused, leased where the worker asked to keep them, else ready.
CREATE OR REPLACE FUNCTION ds_spawn(INOUT work ds_work, tokens ds_new_token[]) LANGUAGE plpgsql AS $$
DECLARE
    spawned record;
BEGIN
    FOR spawned IN
        INSERT INTO token AS t (execution, id, state, scope, kind, node, queue, priority, live, ready_at, fence,
                                owner, due, limit_key, data)
        SELECT work.execution, n.id,
               CASE WHEN n.due IS NOT NULL THEN 'parked' WHEN work.state = 'PAUSED' THEN 'held'
                    WHEN n.keep THEN 'leased' ELSE 'ready' END,
               n.scope, n.kind, n.node, n.queue, n.priority, n.live, work.now, n.keep::integer,
               CASE WHEN n.keep THEN work.worker END, n.due, n.limit_key, n.data
        FROM (SELECT *, due IS NULL AND work.state = 'RUNNING' AND id = ANY (work.keep) AS keep
              FROM unnest(tokens)) AS n
        ON CONFLICT DO NOTHING
        RETURNING t.id, t.state, t.scope, t.queue, t.priority, t.live, t.due
    LOOP
        IF spawned.live THEN
            work := ds_count(work, spawned.scope, 1);
        END IF;
        CASE spawned.state
            WHEN 'ready' THEN
                work.ready := work.ready || row(spawned.id, spawned.queue, spawned.priority)::ds_ready;
            WHEN 'leased' THEN
                work.kept := work.kept || spawned.id;
            WHEN 'parked' THEN
                work := ds_note_due(work, spawned.due);
            ELSE -- held: announced on resume
        END CASE;
    END LOOP;
END $$;

-- A parked token wakes for this reason, if it is still parked. A paused execution's tokens are held.
CREATE OR REPLACE FUNCTION ds_wake_token(INOUT work ds_work, wanted text, why text) LANGUAGE plpgsql AS $$
DECLARE
    woken record;
BEGIN
    UPDATE token SET state = CASE WHEN work.state = 'PAUSED' THEN 'held' ELSE 'ready' END,
                     reason = why, due = NULL, ready_at = work.now, turn = nextval('turn')
    WHERE execution = work.execution AND id = wanted AND state = 'parked'
    RETURNING id, state, queue, priority INTO woken;
    IF woken.state = 'ready' THEN
        work.ready := work.ready || row(woken.id, woken.queue, woken.priority)::ds_ready;
    END IF;
END $$;

-- A scope is closed once it, a scope around it, or the barrier any of them feeds has ended (L5).
CREATE OR REPLACE FUNCTION ds_is_closed(run text, innermost text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    around text := innermost;
BEGIN
    WHILE around <> '' LOOP
        PERFORM FROM scope JOIN barrier ON barrier.execution = run AND barrier.id = scope.barrier
        WHERE scope.execution = run AND scope.path = around AND NOT scope.ended AND barrier.state = 'waiting';
        IF NOT FOUND THEN
            RETURN true;
        END IF;
        around := regexp_replace(around, '/[^/]*$', '');
    END LOOP;
    RETURN false;
END $$;
