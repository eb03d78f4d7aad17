-- SQLite writes a row whole whenever one of its columns changes, and an execution changes when it ends, is swept, is
-- paused or gets tags. A large input is therefore a row of its own, which is written once. The execution's own column
-- is empty then. Inputs of executions that were created before stay where they are.

CREATE TABLE large_input (
    execution INTEGER PRIMARY KEY, -- its number
    data      BLOB NOT NULL
);

DROP VIEW execution_view;

CREATE VIEW execution_view AS
SELECT execution.id, workflow, version, execution.definition, execution.state,
       coalesce(large_input.data, input) AS input, created_at,
       coalesce(flight.touched_at, execution.touched_at, created_at) AS touched_at,
       coalesce(flight.epoch, execution.epoch, 0) AS epoch,
       coalesce(flight.live, execution.live, 0) AS live,
       coalesce(flight.seq, execution.seq, 0) AS seq,
       execution.priority, tags, idempotency_key, parent, relation, execution.paused_at, execution.ended_at,
       output, context, error, execution.kind,
       coalesce(length(large_input.data), length(input)) AS input_bytes
FROM execution
LEFT JOIN flight ON flight.number = execution.number
LEFT JOIN large_input ON large_input.execution = execution.number;
