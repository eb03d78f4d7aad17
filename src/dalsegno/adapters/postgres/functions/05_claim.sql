-- Between commits: who may run a ready token, and what a due timer does.

-- Leases ready tokens by priority, then age. Never waits: what another process has locked is passed over.
-- Tokens that may not run are put where claims no longer find them: cancelled with their execution or scope, held
-- while their execution is paused. The latter under a share lock, so that no resume can overlook them.
CREATE OR REPLACE FUNCTION ds_claim(given_worker text, queues text[], at_most integer)
RETURNS SETOF token LANGUAGE plpgsql AS $$
DECLARE
    seen integer;
    given integer := 0;
    wanted integer;
    changed token;
BEGIN
    LOOP
        wanted := at_most - given;
        EXIT WHEN wanted <= 0;
        seen := 0;
        FOR changed IN
            WITH picked AS MATERIALIZED (
                SELECT candidate.* FROM unnest(queues) AS served(queue)
                CROSS JOIN LATERAL (
                    SELECT execution, id, scope, priority, ready_at, turn FROM token
                    WHERE state = 'ready' AND token.queue = served.queue
                    ORDER BY priority DESC, ready_at, turn LIMIT wanted FOR UPDATE SKIP LOCKED
                ) AS candidate
                ORDER BY priority DESC, ready_at, turn LIMIT wanted
            ), paused AS MATERIALIZED (
                SELECT id FROM flight WHERE id IN (SELECT execution FROM picked) AND state = 'PAUSED'
                FOR SHARE SKIP LOCKED
            ), judged AS (
                SELECT picked.*,
                       CASE WHEN flight.ended_at IS NOT NULL OR flight.id IS NULL THEN 'cancelled'
                            WHEN scope <> '' AND ds_is_closed(execution, scope) THEN 'cancelled'
                            WHEN flight.state = 'PAUSED' THEN CASE WHEN paused.id IS NOT NULL THEN 'held' END
                            ELSE 'leased' END AS fate
                FROM picked
                LEFT JOIN flight ON flight.id = execution
                LEFT JOIN paused ON paused.id = execution
            ), given AS (
                UPDATE token SET state = fate, owner = CASE WHEN fate = 'leased' THEN given_worker END,
                                 fence = fence + (fate = 'leased')::integer
                FROM judged
                WHERE token.execution = judged.execution AND token.id = judged.id AND fate IS NOT NULL
                RETURNING token.*
            )
            SELECT * FROM given ORDER BY priority DESC, ready_at, turn
        LOOP
            seen := seen + 1;
            IF changed.state = 'leased' THEN
                given := given + 1;
                RETURN NEXT changed;
            END IF;
        END LOOP;
        EXIT WHEN seen < wanted;
    END LOOP;
END $$;

-- Makes due tokens ready, in due order. A barrier whose deadline passed is timed out with its join token; while its
-- execution is paused a token is held, and the execution's own deadline waits for the resume that moves it.
CREATE OR REPLACE FUNCTION ds_wake(at float8, at_most integer)
RETURNS TABLE (token text, execution text, queue text, priority integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    names text[];
    runs text[];
    mine text[];
BEGIN
    SELECT array_agg(id), array_agg(due_token.execution) INTO names, runs
    FROM (SELECT id, execution FROM token WHERE state = 'parked' AND due <= at
          ORDER BY due, turn LIMIT at_most) AS due_token;
    mine := ds_lock(runs);
    RETURN QUERY
    WITH due_tokens AS (
        SELECT token.execution, token.id, token.due, token.turn, token.kind, token.barrier,
               CASE WHEN flight.ended_at IS NOT NULL
                      OR scope <> '' AND ds_is_closed(token.execution, scope) THEN 'cancelled'
                    WHEN flight.state = 'PAUSED' THEN 'held' ELSE 'ready' END AS fate
        FROM unnest(runs, names) AS named(execution, id)
        JOIN token USING (execution, id)
        JOIN flight ON flight.id = token.execution
        WHERE token.state = 'parked' AND token.due <= at AND token.execution = ANY (mine)
    ), timed_out AS (
        UPDATE barrier SET state = 'timeout'
        FROM due_tokens
        WHERE barrier.execution = due_tokens.execution AND barrier.id = due_tokens.barrier
          AND barrier.state = 'waiting' AND fate <> 'cancelled'
    ), woken AS (
        UPDATE token SET state = fate, ready_at = at, turn = nextval('turn'),
                         reason = CASE WHEN fate = 'held' AND token.kind = 'deadline' THEN reason
                                       WHEN token.barrier IS NOT NULL THEN 'timeout' ELSE 'timer' END
        FROM due_tokens
        WHERE token.execution = due_tokens.execution AND token.id = due_tokens.id
        RETURNING token.id, token.execution, token.queue, token.priority, token.state, due_tokens.due,
                  due_tokens.turn
    )
    SELECT id, execution, queue, priority FROM woken WHERE state = 'ready' ORDER BY due, turn;
END $$;
