-- Changes. Each statement is one transaction.

-- :name batch
-- One row per transition: what became of it.
SELECT place, kind, reason, kept, ready, ended, next_due, ds_now(NULL) AS seen
FROM ds_commit($1, $2::ds_transition[]);

-- :name claim
-- Leases, in the order of the Lease's fields. The order of claims is the function's.
SELECT claimed.id, claimed.execution, fence, scope, kind, node, data, queue, claimed.priority, attempt, losses, reason,
       ready_at, definition, epoch, claimed.live
FROM ds_claim($1, $2, $3) WITH ORDINALITY AS claimed
JOIN flight ON flight.id = claimed.execution
ORDER BY ordinality;

-- :name wake
SELECT token, execution, queue, priority FROM ds_wake(ds_now($1), $2);

-- :name delivered
DELETE FROM outbox WHERE id = ANY ($1::text[]);
