-- Effects that concern the execution as a whole: endings, gates, cancelling, pausing.

CREATE OR REPLACE FUNCTION ds_finish(INOUT work ds_work, ending ds_finish) LANGUAGE plpgsql AS $$
BEGIN
    work.state := ending.state;
    work.ended_at := work.now;
    UPDATE execution SET state = work.state, ended_at = work.now, paused_at = NULL,
                         output = ending.output, context = ending.context, error = ending.error
    WHERE id = work.execution;
    work := ds_record(work, ARRAY[ending.event]);
END $$;

-- Judged after all other effects of its transition (see the model's EndIfLast).
CREATE OR REPLACE FUNCTION ds_end_if_last(INOUT work ds_work, effect ds_effect) LANGUAGE plpgsql AS $$
DECLARE
    still_live integer := work.live;
BEGIN
    IF work.ended_at IS NOT NULL THEN
        RETURN;
    END IF;
    IF effect.scope <> '' THEN
        SELECT live INTO still_live FROM scope WHERE execution = work.execution AND path = effect.scope;
    END IF;
    IF coalesce(still_live, 0) = 0
       AND ((effect.finish).state IS NOT NULL OR effect.slot_data IS NOT NULL)
       AND NOT EXISTS (SELECT FROM left_context WHERE execution = work.execution AND scope = effect.scope)
    THEN
        IF (effect.finish).state IS NOT NULL THEN
            work := ds_finish(work, effect.finish);
        ELSE
            work := ds_end_scope(work, effect.scope, effect.slot_data, false, effect.event);
        END IF;
        RETURN;
    END IF;
    IF effect.data IS NOT NULL THEN
        PERFORM ds_leave(work.execution, effect.scope, effect.name, effect.data);
    END IF;
    IF coalesce(still_live, 0) = 0 THEN
        work := ds_write_counts(ds_spawn(work, ARRAY[effect.token]));
    END IF;
END $$;

-- The later context under one key counts.
CREATE OR REPLACE FUNCTION ds_leave(run text, place text, called text, what bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO left_context (execution, scope, key, data) VALUES (run, place, called, what)
    ON CONFLICT ON CONSTRAINT left_context_pkey DO UPDATE SET data = excluded.data;
END $$;

-- Adds up a transition's adjustments per gate; at zero its closed token is spawned, once.
CREATE OR REPLACE FUNCTION ds_adjust_gates(INOUT work ds_work, effects ds_effect[]) LANGUAGE plpgsql AS $$
DECLARE
    closing ds_new_token[];
BEGIN
    WITH wanted AS (
        SELECT (e.gate).id, (e.gate).open_edges, (e.gate).closed, e.number AS delta, e.used
        FROM unnest(effects) AS e WHERE e.kind = 'AdjustGate'
    ), summed AS (
        SELECT id, min(open_edges) AS open_edges, sum(delta)::integer AS delta,
               ARRAY(SELECT unnest(u.used) FROM wanted AS u WHERE u.id = wanted.id) AS used
        FROM wanted GROUP BY id
    ), adjusted AS (
        INSERT INTO gate AS g (execution, id, count, used)
        SELECT work.execution, id, open_edges + delta, used FROM summed
        ON CONFLICT (execution, id) DO UPDATE
            SET count = g.count + (SELECT delta FROM summed WHERE summed.id = g.id), used = g.used || excluded.used
        RETURNING g.id, g.count
    )
    SELECT array_agg(wanted.closed) INTO closing
    FROM wanted JOIN adjusted USING (id) WHERE adjusted.count = 0;
    IF closing IS NOT NULL THEN
        work := ds_spawn(work, closing);
    END IF;
END $$;

-- Drops the live tokens of a scope that stand at these nodes, all but the one being consumed, and cancels the
-- barriers that joins among them were parked at.
CREATE OR REPLACE FUNCTION ds_cancel_tokens(INOUT work ds_work, place text, nodes text[]) LANGUAGE plpgsql AS $$
DECLARE
    dropped record;
BEGIN
    FOR dropped IN
        UPDATE token SET state = 'cancelled', owner = NULL
        WHERE execution = work.execution AND scope = place AND node = ANY (nodes)
          AND state IN ('ready', 'leased', 'parked', 'held') AND id IS DISTINCT FROM work.token
        RETURNING id, node, scope, live, barrier
    LOOP
        IF dropped.live THEN
            work := ds_count(work, dropped.scope, -1);
            work := ds_record(work, ARRAY[row('NodeCancelled', dropped.node, dropped.scope, work.now, NULL,
                                              dropped.id)::ds_new_event]);
        END IF;
        IF dropped.barrier IS NOT NULL THEN
            UPDATE barrier SET state = 'cancelled'
            WHERE execution = work.execution AND id = dropped.barrier AND state = 'waiting';
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION ds_pause(INOUT work ds_work, paused ds_new_event) LANGUAGE plpgsql AS $$
BEGIN
    work.state := 'PAUSED';
    work.paused_at := work.now;
    UPDATE execution SET state = 'PAUSED', paused_at = work.now WHERE id = work.execution;
    work := ds_record(work, ARRAY[paused]);
END $$;

-- Held tokens become ready in due order; deadlines sleep on for as long as was paused.
CREATE OR REPLACE FUNCTION ds_resume(INOUT work ds_work, resumed ds_new_event) LANGUAGE plpgsql AS $$
DECLARE
    paused_for float8 := work.now - coalesce(work.paused_at, work.now);
    changed record;
    woken ds_ready[];
BEGIN
    work := ds_record(work, ARRAY[resumed]);
    work.state := 'RUNNING';
    work.paused_at := NULL;
    UPDATE execution SET state = 'RUNNING', paused_at = NULL WHERE id = work.execution;
    FOR changed IN
        UPDATE token SET due = due + paused_for, state = 'parked'
        WHERE execution = work.execution AND kind = 'deadline' AND due IS NOT NULL AND state IN ('parked', 'held')
        RETURNING due
    LOOP
        work := ds_note_due(work, changed.due);
    END LOOP;
    WITH announced AS (
        UPDATE token SET state = 'ready', ready_at = work.now + held.nth * 1e-6, turn = nextval('turn')
        FROM (SELECT id AS held_id, row_number() OVER (ORDER BY coalesce(due, ready_at), id) - 1 AS nth
              FROM token WHERE execution = work.execution AND state = 'held') AS held
        WHERE execution = work.execution AND id = held.held_id
        RETURNING id, queue, priority, held.nth
    )
    SELECT array_agg(row(id, queue, priority)::ds_ready ORDER BY nth) INTO woken FROM announced;
    work.ready := work.ready || woken;
END $$;
