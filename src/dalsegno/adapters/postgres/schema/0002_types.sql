-- What a commit is given, as types that mirror `dalsegno.model`: a batch travels as one array of ds_transition.
-- Fields stand in the order of the model's, so that Python passes a value's fields as they are.

CREATE TYPE ds_new_token AS (
    id text, scope text, kind text, node text, data bytea, queue text, priority integer, limit_key text,
    live boolean, due float8
);

CREATE TYPE ds_new_event AS (kind text, node text, scope text, at float8, data bytea, token text);

CREATE TYPE ds_barrier_spec AS (
    id text, scope text, node text, expected integer, join_token ds_new_token, mode text, timeout float8,
    live_at_once boolean
);

CREATE TYPE ds_milestone AS (resolved integer, token ds_new_token);

CREATE TYPE ds_gate_spec AS (id text, scope text, node text, open_edges integer, closed ds_new_token);

CREATE TYPE ds_finish AS (state text, event ds_new_event, output bytea, context bytea, error bytea);

CREATE TYPE ds_new_execution AS (
    id text, workflow text, version integer, definition text, input bytea, created_at float8, priority integer,
    tag_names text[], tag_values text[], idempotency_key text, parent text, relation text
);

-- One effect of any kind; `kind` is the name of its class. Fields that a kind does not have are NULL.
--
--   SpawnToken     token
--   ResolveSlot    barrier, number (slot), flag (live), data, event (waiting), dropped
--   OpenBarrier    barrier, milestone
--   SetMilestone   name (barrier), milestone
--   OpenScope      scope, name (barrier), number (slot)
--   EndScope       scope, data, flag (trip), event
--   LeaveContext   scope, name (key), data
--   EndIfLast      scope, token (finisher), name (key), data (left), finish, slot_data, event
--   FinishExecution finish
--   AdjustGate     gate, number (delta), used
--   StoreOutput    name (id), data
--   CancelTokens   scope, nodes
--   PauseExecution, ResumeExecution  event
--   WriteOutbox    name (id), scope (topic), data
CREATE TYPE ds_effect AS (
    kind text, scope text, name text, number integer, flag boolean, data bytea, slot_data bytea,
    token ds_new_token, barrier ds_barrier_spec, milestone ds_milestone, gate ds_gate_spec, finish ds_finish,
    event ds_new_event, dropped ds_new_event, used integer[], nodes text[]
);

-- `creates` is set in a start; `park_attempt` where the token is parked instead of consumed. `shape` tells which way
-- through a commit it may go: 'step' and 'last' the plain one, 'other' only the general one.
CREATE TYPE ds_transition AS (
    execution text, token text, fence integer, epoch integer, scope text, digest bytea, worker text, keep text[],
    park_due float8, park_data bytea, park_attempt integer, creates ds_new_execution, events ds_new_event[],
    effects ds_effect[], shape text
);

CREATE TYPE ds_ready AS (token text, queue text, priority integer);

-- What became of one transition; `place` counts from 1 in the batch.
CREATE TYPE ds_outcome AS (
    place integer, kind text, reason text, kept text[], ready ds_ready[], ended text, next_due float8
);

-- One execution being worked on: its flight row, and what its current transition has done so far.
-- `scopes` and `deltas` are changes of live counts, summed and written once per transition.
CREATE TYPE ds_work AS (
    execution text, state text, epoch integer, seq integer, live integer, paused_at float8, ended_at float8,
    now float8, token text, worker text, keep text[], scopes text[], deltas integer[], ready ds_ready[],
    kept text[], next_due float8
);
