-- Barriers: slots resolve once, the barrier opens once (L7).

-- The join token counts as live from here on, and the barrier's deadline runs.
CREATE OR REPLACE FUNCTION ds_park_join(INOUT work ds_work, spec ds_barrier_spec) LANGUAGE plpgsql AS $$
DECLARE
    new ds_new_token := spec.join_token;
    deadline_at float8 := work.now + spec.timeout;
BEGIN
    INSERT INTO token (execution, id, state, scope, kind, node, queue, priority, live, ready_at, due, barrier,
                       limit_key, data)
    VALUES (work.execution, new.id, 'parked', new.scope, new.kind, new.node, new.queue, new.priority, new.live,
            work.now, deadline_at, spec.id, new.limit_key, new.data)
    ON CONFLICT DO NOTHING;
    UPDATE barrier SET deadline = deadline_at
    WHERE execution = work.execution AND id = spec.id AND deadline_at IS NOT NULL;
    work := ds_note_due(ds_count(work, new.scope, 1), deadline_at);
END $$;

-- Whether the barrier was created now.
CREATE OR REPLACE FUNCTION ds_create_barrier(INOUT work ds_work, spec ds_barrier_spec, OUT created boolean)
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO barrier (execution, id, scope, node, mode, expected, join_token)
    VALUES (work.execution, spec.id, spec.scope, spec.node, spec.mode, spec.expected, (spec.join_token).id)
    ON CONFLICT DO NOTHING;
    created := FOUND;
    IF created AND spec.live_at_once THEN
        work := ds_park_join(work, spec);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION ds_open_barrier(INOUT work ds_work, wanted text, new_state text) LANGUAGE plpgsql AS $$
DECLARE
    waiting_join text;
BEGIN
    UPDATE barrier SET state = new_state WHERE execution = work.execution AND id = wanted
    RETURNING join_token INTO waiting_join;
    work := ds_wake_token(work, waiting_join, new_state);
END $$;

-- Every slot was skipped: the join token is born ready, with the reason dead.
CREATE OR REPLACE FUNCTION ds_bury_barrier(INOUT work ds_work, spec ds_barrier_spec) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE barrier SET state = 'dead' WHERE execution = work.execution AND id = spec.id;
    work := ds_park_join(work, row(spec.id, spec.scope, spec.node, spec.expected, spec.join_token, spec.mode,
                                   NULL, spec.live_at_once)::ds_barrier_spec);
    work := ds_wake_token(work, (spec.join_token).id, 'dead');
END $$;

-- An edge of a merge or join resolves its slot, live or skipped; what comes too late is dropped.
CREATE OR REPLACE FUNCTION ds_arrive(INOUT work ds_work, effect ds_effect) LANGUAGE plpgsql AS $$
DECLARE
    spec ds_barrier_spec := effect.barrier;
    accepted record;
BEGIN
    work := (ds_create_barrier(work, spec)).work;
    INSERT INTO slot (execution, barrier, slot, live, data)
    SELECT work.execution, spec.id, effect.number, effect.flag, effect.data
    FROM barrier WHERE execution = work.execution AND id = spec.id AND state = 'waiting'
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        IF (effect.dropped).kind IS NOT NULL THEN
            work := ds_record(work, ARRAY[effect.dropped]);
        END IF;
        RETURN;
    END IF;
    UPDATE barrier SET resolved = resolved + 1, live = live + effect.flag::integer
    WHERE execution = work.execution AND id = spec.id
    RETURNING * INTO accepted;
    IF effect.flag AND accepted.live = 1 THEN
        work := ds_park_join(work, spec);
    END IF;
    IF accepted.live > 0 AND (accepted.resolved >= accepted.expected OR accepted.mode = 'any') THEN
        work := ds_open_barrier(work, spec.id, 'open');
    ELSIF accepted.resolved >= accepted.expected THEN
        work := ds_bury_barrier(work, spec);
    ELSIF (effect.event).kind IS NOT NULL THEN
        work := ds_record(work, ARRAY[effect.event], accepted.live, accepted.expected);
    END IF;
END $$;

-- A milestone's token wakes once its count is reached.
CREATE OR REPLACE FUNCTION ds_reach_milestone(INOUT work ds_work, wanted text) LANGUAGE plpgsql AS $$
DECLARE
    reached text;
BEGIN
    SELECT milestone_token INTO reached FROM barrier
    WHERE execution = work.execution AND id = wanted AND resolved >= milestone_at;
    IF reached IS NOT NULL THEN
        UPDATE barrier SET milestone_at = NULL, milestone_token = NULL
        WHERE execution = work.execution AND id = wanted;
        work := ds_wake_token(work, reached, '');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION ds_set_milestone(INOUT work ds_work, wanted text, milestone ds_milestone)
LANGUAGE plpgsql AS $$
DECLARE
    new ds_new_token := milestone.token;
BEGIN
    UPDATE barrier SET milestone_at = milestone.resolved, milestone_token = new.id
    WHERE execution = work.execution AND id = wanted AND state = 'waiting';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO token (execution, id, state, scope, kind, node, queue, priority, live, ready_at, limit_key, data)
    VALUES (work.execution, new.id, 'parked', new.scope, new.kind, new.node, new.queue, new.priority, new.live,
            work.now, new.limit_key, new.data)
    ON CONFLICT DO NOTHING;
    work := ds_reach_milestone(work, wanted);
END $$;

-- An item's scope ends: its slot of the split's barrier is resolved, once.
CREATE OR REPLACE FUNCTION ds_end_scope(INOUT work ds_work, ending text, result bytea, trip boolean,
                                        progress ds_new_event) LANGUAGE plpgsql AS $$
DECLARE
    ended record;
    fed record;
BEGIN
    UPDATE scope SET ended = true WHERE execution = work.execution AND path = ending AND NOT scope.ended
    RETURNING barrier, slot INTO ended;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE barrier SET resolved = resolved + 1, live = live + 1
    WHERE execution = work.execution AND id = ended.barrier AND state = 'waiting'
    RETURNING * INTO fed;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO slot (execution, barrier, slot, live, data)
    VALUES (work.execution, ended.barrier, ended.slot, true, result);
    IF trip THEN
        work := ds_open_barrier(work, fed.id, 'tripped');
    ELSIF fed.resolved >= fed.expected THEN
        work := ds_open_barrier(work, fed.id, 'open');
    ELSE
        IF fed.resolved >= fed.milestone_at THEN
            work := ds_reach_milestone(work, fed.id);
        END IF;
        IF progress.kind IS NOT NULL THEN
            work := ds_record(work, ARRAY[progress], fed.resolved, fed.expected);
        END IF;
    END IF;
END $$;
