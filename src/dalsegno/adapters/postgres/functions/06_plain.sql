-- The plain way through a commit, for what most transitions are: a step of the root scope that consumes or parks its
-- token, spawns, stores and records, or ends its execution as the last. A batch of them is a few statements, each
-- row written once. Whatever is not plain, or would not be applied, is left to the general way: this one refuses
-- nothing, so the rules about refusals stand in one place.

-- Places of the transitions that can go this way. All of an execution's transitions do, or none. Python has marked
-- by their shape those that may (see encoding.py); here the rows decide: locked, running, leased under this fence,
-- and the one that ends its execution stands alone in it.
CREATE OR REPLACE FUNCTION ds_plain_places(batch ds_transition[], locked text[]) RETURNS integer[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT place FROM (
            SELECT place, bool_and(fits) OVER (PARTITION BY execution) AS all_fit
            FROM (
                SELECT b.place::integer, b.execution,
                       b.shape <> 'other' AND flight.state = 'RUNNING' AND flight.epoch = b.epoch
                       AND token.state = 'leased' AND token.fence = b.fence AND token.scope = ''
                       AND row_number() OVER (PARTITION BY b.execution, b.token ORDER BY b.place) = 1
                       AND (b.shape = 'step'
                            OR flight.live = 1 AND token.live AND count(*) OVER (PARTITION BY b.execution) = 1
                               AND NOT EXISTS (SELECT FROM left_context AS l
                                               WHERE l.execution = b.execution AND l.scope = '')) AS fits
                FROM unnest(batch) WITH ORDINALITY AS b(execution, token, fence, epoch, scope, digest, worker, keep,
                    park_due, park_data, park_attempt, creates, events, effects, shape, place)
                JOIN unnest(locked) AS mine(id) ON mine.id = b.execution
                JOIN flight ON flight.id = b.execution
                LEFT JOIN token ON token.execution = b.execution AND token.id = b.token
            ) AS judged
        ) AS grouped
        WHERE all_fit
        ORDER BY place);
END $$;

CREATE OR REPLACE FUNCTION ds_commit_plain(at float8, batch ds_transition[], places integer[])
RETURNS SETOF ds_outcome LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    WITH work AS MATERIALIZED (
        SELECT b.* FROM unnest(batch) WITH ORDINALITY AS b(execution, token, fence, epoch, scope, digest, worker, keep,
            park_due, park_data, park_attempt, creates, events, effects, shape, place)
        JOIN unnest(places) AS mine(place) USING (place)
    ), released AS (
        -- A lease that was taken back meanwhile is not found here; nothing of its transition is applied.
        UPDATE token AS t SET
            state = CASE WHEN w.park_attempt IS NULL THEN 'consumed' ELSE 'parked' END, owner = NULL,
            digest = w.digest, data = coalesce(w.park_data, ''), attempt = coalesce(w.park_attempt, t.attempt),
            due = w.park_due, losses = CASE WHEN w.park_attempt IS NULL THEN t.losses ELSE 0 END,
            reason = CASE WHEN w.park_attempt IS NULL THEN t.reason ELSE '' END
        FROM work AS w
        WHERE t.execution = w.execution AND t.id = w.token AND t.state = 'leased' AND t.fence = w.fence
        RETURNING w.place, t.live AND w.park_attempt IS NULL AS leaves
    ), effect AS MATERIALIZED (
        SELECT w.place, w.execution, w.worker, w.keep, e.nth, e.kind, e.scope, e.name, e.data, e.token, e.finish
        FROM work AS w JOIN released USING (place)
        CROSS JOIN LATERAL unnest(w.effects) WITH ORDINALITY AS e(kind, scope, name, number, flag, data, slot_data,
            token, barrier, milestone, gate, finish, event, dropped, used, nodes, nth)
    ), new_token AS MATERIALIZED (
        SELECT DISTINCT ON (execution, id) place, nth, execution, worker, keep, (token).*
        FROM effect WHERE kind = 'SpawnToken' ORDER BY execution, id, place, nth
    ), spawned AS (
        INSERT INTO token AS t (execution, id, state, scope, kind, node, queue, priority, live, ready_at, fence, owner,
                                due, limit_key, data)
        SELECT execution, id,
               CASE WHEN due IS NOT NULL THEN 'parked' WHEN id = ANY (keep) THEN 'leased' ELSE 'ready' END,
               '', kind, node, queue, priority, live, at, (due IS NULL AND id = ANY (keep))::integer,
               CASE WHEN due IS NULL AND id = ANY (keep) THEN worker END, due, limit_key, data
        FROM new_token ORDER BY place, nth
        ON CONFLICT DO NOTHING
        RETURNING t.execution, t.id, t.state, t.queue, t.priority, t.live, t.due
    ), stored AS (
        INSERT INTO output (execution, id, data)
        SELECT DISTINCT ON (execution, name) execution, name, data
        FROM effect WHERE kind = 'StoreOutput' ORDER BY execution, name, place DESC, nth DESC
        ON CONFLICT (execution, id) DO UPDATE SET data = excluded.data
    ), owed AS (
        INSERT INTO outbox (id, execution, topic, data)
        SELECT name, execution, scope, data FROM effect WHERE kind = 'WriteOutbox' ORDER BY place, nth
        ON CONFLICT DO NOTHING
    ), ended AS MATERIALIZED (
        SELECT place, execution, (finish).* FROM effect WHERE kind IN ('EndIfLast', 'FinishExecution')
    ), finished AS (
        UPDATE execution AS x SET state = ended.state, ended_at = at, output = ended.output,
                                  context = ended.context, error = ended.error
        FROM ended WHERE x.id = ended.execution
    ), new_event AS MATERIALIZED (
        SELECT w.execution, w.place, e.nth, e.kind, e.node, e.scope, e.at, e.data, e.token
        FROM work AS w JOIN released USING (place)
        CROSS JOIN LATERAL unnest(w.events) WITH ORDINALITY AS e(kind, node, scope, at, data, token, nth)
        UNION ALL
        SELECT execution, place, 1000000, (event).* FROM ended
    ), recorded AS (
        INSERT INTO event (execution, seq, kind, node, scope, at, token, data)
        SELECT execution, flight.seq + row_number() OVER (PARTITION BY execution ORDER BY place, nth), kind, node,
               scope, new_event.at, token, data
        FROM new_event JOIN flight ON flight.id = execution
    ), change AS (
        SELECT execution, sum(live)::integer AS live, sum(events)::integer AS events, max(state) AS state
        FROM (SELECT execution, -leaves::integer AS live, 0 AS events, NULL AS state
              FROM released JOIN work USING (place)
              UNION ALL SELECT execution, live::integer, 0, NULL FROM spawned
              UNION ALL SELECT execution, 0, 1, NULL FROM new_event
              UNION ALL SELECT execution, 0, 0, state FROM ended) AS part
        GROUP BY execution
    ), flown AS (
        UPDATE flight AS f SET live = f.live + change.live, seq = f.seq + change.events, touched_at = at,
                               state = coalesce(change.state, f.state),
                               ended_at = CASE WHEN change.state IS NOT NULL THEN at END
        FROM change WHERE f.id = change.execution
    ), born AS (
        -- Brings a spawned token together with its place by grouping: for a join of two lists whose length it cannot
        -- know, the planner would loop over both.
        SELECT max(place) AS place, max(nth) AS nth, id, max(state) AS state, max(queue) AS queue,
               max(priority) AS priority, max(due) AS due
        FROM (SELECT execution, id, place, nth, NULL AS state, NULL AS queue, NULL::integer AS priority,
                     NULL::float8 AS due FROM new_token
              UNION ALL SELECT execution, id, NULL, NULL, state, queue, priority, due FROM spawned) AS half
        GROUP BY execution, id
    ), result AS (
        SELECT place,
               array_agg(id ORDER BY nth) FILTER (WHERE state = 'leased') AS kept,
               array_agg(row(id, queue, priority)::ds_ready ORDER BY nth) FILTER (WHERE state = 'ready') AS ready,
               min(due) AS next_due
        FROM born GROUP BY place
    )
    SELECT work.place::integer, CASE WHEN released.place IS NULL THEN 'Stale' ELSE 'Applied' END, 'fence',
           coalesce(result.kept, '{}'), coalesce(result.ready, '{}'), ended.state,
           least(result.next_due, CASE WHEN work.park_attempt IS NOT NULL THEN work.park_due END)
    FROM work
    LEFT JOIN released USING (place)
    LEFT JOIN result USING (place)
    LEFT JOIN ended USING (place);
END $$;
