-- The commit of a batch: one call, one transaction (L1–L5, L7, L8).
--
--   1. Executions that are started come into being, in id order.
--   2. The flight rows of all others are locked, in id order. What another process has locked is Deferred; nothing
--      waits, so nothing can deadlock. Only now, in a new snapshot, anything else is read.
--   3. Plain transitions are applied all at once (06_plain.sql).
--   4. The others are settled execution by execution, in the batch's order. Each sees what those before it did.
--   5. Each flight row is written once.

-- Applies the effects of one transition that has been accepted. Wide kinds (a split's items) go in one statement.
CREATE OR REPLACE FUNCTION ds_apply(INOUT work ds_work, events ds_new_event[], effects ds_effect[])
LANGUAGE plpgsql AS $$
DECLARE
    effect ds_effect;
    opened record;
    spawns ds_new_token[] := '{}';
    endings ds_effect[] := '{}';
    opens_scopes boolean := false;
    adjusts_gates boolean := false;
BEGIN
    IF cardinality(events) > 0 THEN
        work := ds_record(work, events);
    END IF;
    FOREACH effect IN ARRAY effects LOOP
        CASE effect.kind
            WHEN 'SpawnToken' THEN spawns := spawns || effect.token;
            WHEN 'ResolveSlot' THEN work := ds_arrive(work, effect);
            WHEN 'OpenScope' THEN
                IF NOT opens_scopes THEN -- the first opens them all
                    PERFORM ds_open_scopes(work.execution, effects);
                    opens_scopes := true;
                END IF;
            WHEN 'EndScope' THEN
                work := ds_end_scope(work, effect.scope, effect.data, effect.flag, effect.event);
            WHEN 'OpenBarrier' THEN
                opened := ds_create_barrier(work, effect.barrier);
                work := opened.work;
                IF opened.created AND (effect.milestone).resolved IS NOT NULL THEN
                    work := ds_set_milestone(work, (effect.barrier).id, effect.milestone);
                END IF;
            WHEN 'SetMilestone' THEN work := ds_set_milestone(work, effect.name, effect.milestone);
            WHEN 'StoreOutput' THEN
                INSERT INTO output (execution, id, data) VALUES (work.execution, effect.name, effect.data)
                ON CONFLICT (execution, id) DO UPDATE SET data = excluded.data;
            WHEN 'LeaveContext' THEN
                PERFORM ds_leave(work.execution, effect.scope, effect.name, effect.data);
            WHEN 'WriteOutbox' THEN
                INSERT INTO outbox (id, execution, topic, data)
                VALUES (effect.name, work.execution, effect.scope, effect.data) ON CONFLICT DO NOTHING;
            WHEN 'AdjustGate' THEN adjusts_gates := true;
            WHEN 'EndIfLast' THEN endings := endings || effect;
            WHEN 'FinishExecution' THEN work := ds_finish(work, effect.finish);
            WHEN 'CancelTokens' THEN work := ds_cancel_tokens(work, effect.scope, effect.nodes);
            WHEN 'PauseExecution' THEN work := ds_pause(work, effect.event);
            WHEN 'ResumeExecution' THEN work := ds_resume(work, effect.event);
            WHEN 'CreateExecution' THEN -- exists already
        END CASE;
    END LOOP;
    IF cardinality(spawns) > 0 THEN
        work := ds_spawn(work, spawns);
    END IF;
    IF adjusts_gates THEN
        work := ds_adjust_gates(work, effects);
    END IF;
    work := ds_write_counts(work);
    FOREACH effect IN ARRAY endings LOOP
        work := ds_end_if_last(work, effect);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION ds_open_scopes(run text, effects ds_effect[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO scope (execution, path, barrier, slot)
    SELECT run, e.scope, e.name, e.number FROM unnest(effects) AS e WHERE e.kind = 'OpenScope'
    ON CONFLICT DO NOTHING;
END $$;

-- Consumes or parks the token, if the transition may: returns why not, or NULL.
CREATE OR REPLACE FUNCTION ds_take_token(INOUT work ds_work, t ds_transition, OUT refusal text)
LANGUAGE plpgsql AS $$
DECLARE
    found_token record;
    parks boolean := t.park_attempt IS NOT NULL;
BEGIN
    SELECT state, fence, digest, scope, live INTO found_token
    FROM token WHERE execution = t.execution AND id = t.token;
    IF NOT FOUND THEN
        refusal := CASE WHEN work.ended_at IS NOT NULL THEN 'finished' ELSE 'unknown' END;
    ELSIF found_token.state <> 'leased' OR found_token.fence <> t.fence THEN
        refusal := CASE WHEN found_token.digest = t.digest THEN 'applied'
                        WHEN work.ended_at IS NOT NULL THEN 'finished' ELSE 'fence' END;
    ELSIF work.ended_at IS NOT NULL THEN
        refusal := 'finished';
    ELSIF t.epoch <> work.epoch THEN
        refusal := 'version';
    ELSIF found_token.scope <> '' AND ds_is_closed(t.execution, found_token.scope) THEN
        refusal := 'scope';
    END IF;
    IF refusal IS NOT NULL THEN
        RETURN;
    END IF;
    -- Its lease may have been taken back since it was read; then the fence says so.
    UPDATE token SET state = CASE WHEN parks THEN 'parked' ELSE 'consumed' END, owner = NULL, digest = t.digest,
                     data = CASE WHEN parks THEN t.park_data ELSE '' END,
                     attempt = coalesce(t.park_attempt, attempt), due = t.park_due,
                     losses = CASE WHEN parks THEN 0 ELSE losses END,
                     reason = CASE WHEN parks THEN '' ELSE reason END
    WHERE execution = t.execution AND id = t.token AND state = 'leased' AND fence = t.fence;
    IF NOT FOUND THEN
        refusal := 'fence';
    ELSIF parks THEN
        work := ds_note_due(work, t.park_due);
    ELSIF found_token.live THEN
        work := ds_count(work, found_token.scope, -1);
    END IF;
END $$;

-- Commands from outside consume nothing: returns why one may not be applied, or NULL.
CREATE OR REPLACE FUNCTION ds_refuse_command(work ds_work, t ds_transition, starts boolean) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE
        WHEN (t.creates).id IS NOT NULL THEN CASE WHEN NOT starts THEN 'applied' END
        WHEN work.ended_at IS NOT NULL THEN 'finished'
        WHEN t.scope <> '' AND ds_is_closed(t.execution, t.scope) THEN 'scope'
        WHEN (t.effects[1]).kind = 'PauseExecution' AND work.state = 'PAUSED' THEN 'applied'
        WHEN (t.effects[1]).kind = 'ResumeExecution' AND work.state <> 'PAUSED' THEN 'applied'
    END;
END $$;

-- Brings executions into being; returns the ids of those that did not exist.
CREATE OR REPLACE FUNCTION ds_create_executions(at float8, batch ds_transition[]) RETURNS text[]
LANGUAGE sql AS $$
    WITH wanted AS (
        SELECT DISTINCT ON ((t.creates).id) (t.creates).* FROM unnest(batch) AS t
        WHERE (t.creates).id IS NOT NULL ORDER BY (t.creates).id
    ), created AS (
        INSERT INTO execution (id, workflow, version, definition, state, created_at, priority, parent, relation,
                               idempotency_key, tag_names, tag_values, input)
        SELECT id, workflow, version, definition, 'RUNNING', created_at, priority, parent, relation,
               idempotency_key, tag_names, tag_values, input
        FROM wanted
        ON CONFLICT DO NOTHING
        RETURNING id, definition, priority
    ), flying AS (
        INSERT INTO flight (id, state, definition, priority, touched_at)
        SELECT id, 'RUNNING', definition, priority, at FROM created
        RETURNING id
    )
    SELECT coalesce(array_agg(id), '{}') FROM flying
$$;

CREATE OR REPLACE FUNCTION ds_lock(wanted text[]) RETURNS text[] LANGUAGE sql AS $$
    SELECT coalesce(array_agg(id ORDER BY id), '{}')
    FROM (SELECT id FROM flight WHERE id = ANY (wanted) ORDER BY id FOR UPDATE SKIP LOCKED) AS mine
$$;

-- What became of transitions whose execution is not locked by this commit: another process holds it, or it is gone.
CREATE OR REPLACE FUNCTION ds_judge_absent(batch ds_transition[], places integer[]) RETURNS SETOF ds_outcome
LANGUAGE sql AS $$
    SELECT place,
           CASE WHEN flight.id IS NOT NULL THEN 'Deferred'
                WHEN execution.id IS NOT NULL AND ((batch[place]).creates).id IS NOT NULL THEN 'AlreadyApplied'
                ELSE 'Stale' END,
           CASE WHEN execution.id IS NOT NULL THEN 'finished' ELSE 'unknown' END,
           NULL::text[], NULL::ds_ready[], NULL::text, NULL::float8
    FROM unnest(places) AS place
    LEFT JOIN flight ON flight.id = (batch[place]).execution
    LEFT JOIN execution ON execution.id = (batch[place]).execution
$$;

CREATE OR REPLACE FUNCTION ds_save(work ds_work) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE flight SET state = work.state, seq = work.seq, live = work.live, paused_at = work.paused_at,
                      ended_at = work.ended_at, touched_at = work.now
    WHERE id = work.execution;
END $$;

CREATE OR REPLACE FUNCTION ds_load(run text, at float8) RETURNS ds_work LANGUAGE plpgsql AS $$
DECLARE
    found_flight flight;
BEGIN
    SELECT * INTO found_flight FROM flight WHERE id = run;
    RETURN row(run, found_flight.state, found_flight.epoch, found_flight.seq, found_flight.live,
               found_flight.paused_at, found_flight.ended_at, at, NULL, NULL, '{}', '{}', '{}', '{}', '{}',
               NULL)::ds_work;
END $$;

CREATE OR REPLACE FUNCTION ds_commit(given_now float8, batch ds_transition[]) RETURNS SETOF ds_outcome
LANGUAGE plpgsql AS $$
DECLARE
    at float8 := ds_now(given_now);
    created text[] := ds_create_executions(at, batch);
    locked text[] := ds_lock(ARRAY(SELECT DISTINCT execution FROM unnest(batch)));
    mine integer := 1;
    absent integer[] := '{}';
    plain integer[] := ds_plain_places(batch, locked);
    work ds_work;
    changed boolean := false;
    entry record;
    t ds_transition;
    taken record;
    refusal text;
BEGIN
    IF cardinality(plain) > 0 THEN
        RETURN QUERY SELECT * FROM ds_commit_plain(at, batch, plain);
        IF cardinality(plain) = cardinality(batch) THEN
            RETURN;
        END IF;
    END IF;
    FOR entry IN
        SELECT place::integer, execution FROM unnest(batch) WITH ORDINALITY AS b(execution, token, fence, epoch, scope,
            digest, worker, keep, park_due, park_data, park_attempt, creates, events, effects, shape, place)
        WHERE NOT EXISTS (SELECT FROM unnest(plain) AS done(place) WHERE done.place = b.place)
        ORDER BY execution COLLATE "C", place
    LOOP
        -- Both are in the order of ids.
        WHILE locked[mine] COLLATE "C" < entry.execution LOOP
            mine := mine + 1;
        END LOOP;
        IF locked[mine] IS DISTINCT FROM entry.execution THEN
            absent := absent || entry.place;
            CONTINUE;
        END IF;
        IF work.execution IS DISTINCT FROM entry.execution THEN
            IF changed THEN
                PERFORM ds_save(work);
            END IF;
            work := ds_load(entry.execution, at);
            changed := false;
        END IF;
        t := batch[entry.place];
        IF t.token IS NULL THEN
            refusal := ds_refuse_command(work, t, t.execution = ANY (created));
            created := array_remove(created, t.execution);
        ELSE
            taken := ds_take_token(work, t);
            work := taken.work;
            refusal := taken.refusal;
        END IF;
        IF refusal IS NULL THEN
            work.token := t.token;
            work.worker := t.worker;
            work.keep := t.keep;
            work := ds_apply(work, t.events, t.effects);
            changed := true;
            RETURN NEXT row(entry.place, 'Applied', NULL, work.kept, work.ready,
                            CASE WHEN work.ended_at IS NOT NULL THEN work.state END, work.next_due)::ds_outcome;
            work.kept := '{}';
            work.ready := '{}';
            work.next_due := NULL;
        ELSIF refusal = 'applied' THEN
            RETURN NEXT row(entry.place, 'AlreadyApplied', NULL, NULL, NULL, NULL, NULL)::ds_outcome;
        ELSE
            RETURN NEXT row(entry.place, 'Stale', refusal, NULL, NULL, NULL, NULL)::ds_outcome;
        END IF;
    END LOOP;
    IF changed THEN
        PERFORM ds_save(work);
    END IF;
    IF cardinality(absent) > 0 THEN
        RETURN QUERY SELECT * FROM ds_judge_absent(batch, absent);
    END IF;
END $$;
