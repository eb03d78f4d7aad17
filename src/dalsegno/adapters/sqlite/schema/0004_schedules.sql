-- The few schedules among many executions are found without looking at the others.

CREATE INDEX execution_schedules ON execution (created_at, id) WHERE kind = 'schedule';
