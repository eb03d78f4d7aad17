-- Commits a batch of transitions: each is refused, recognised, or applied whole, in the batch's order (L1–L5, L7, L8).
-- Nothing is written before everything is decided, so a call that fails has changed nothing.
--
-- KEYS  those of 0_keys.lua, then the base of each execution's keys, in the order of first mention
-- ARGV  those of 0_keys.lua, then
--       5   msgpack: the transitions as adapters/flat.py lays them out, each after the number of its execution's base;
--           a payload is the number of the argument that holds it
--       6…  payloads
-- Reply msgpack: { now, outcomes }, an outcome being { kind, reason, kept, ready, ended, next_due }


local function payload(number)
    return number and ARGV[FIRST_ARGUMENT + number]
end

-- From the positions of adapters/flat.py to names.
local function to_token(raw)
    return raw and { id = raw[1], scope = raw[2], kind = raw[3], node = raw[4], data = payload(raw[5]),
                     queue = raw[6], priority = raw[7], limit_key = raw[8], live = raw[9], due = raw[10] }
end

local function to_event(raw)
    return raw and { kind = raw[1], node = raw[2], scope = raw[3], at = raw[4], data = payload(raw[5]),
                     token = raw[6] }
end

local function to_barrier(raw)
    return raw and { id = raw[1], scope = raw[2], node = raw[3], expected = raw[4], join = to_token(raw[5]),
                     mode = raw[6], timeout = raw[7], live_at_once = raw[8] }
end

local function to_finish(raw)
    return raw and { state = raw[1], event = to_event(raw[2]), output = payload(raw[3]), context = payload(raw[4]),
                     error = payload(raw[5]) }
end

local function to_effect(raw)
    local milestone, gate = raw[10], raw[11]
    return { kind = raw[1], scope = raw[2], name = raw[3], number = raw[4], flag = raw[5], data = payload(raw[6]),
             slot_data = payload(raw[7]), token = to_token(raw[8]), barrier = to_barrier(raw[9]),
             milestone = milestone and { resolved = milestone[1], token = to_token(milestone[2]) },
             gate = gate and { id = gate[1], open_edges = gate[4], closed = to_token(gate[5]) },
             finish = to_finish(raw[12]), event = to_event(raw[13]), dropped = to_event(raw[14]), used = raw[15],
             nodes = raw[16] }
end

local function to_transition(raw)
    return { base = KEYS[SHARED_KEYS + raw[1]], execution = raw[2], token = raw[3], fence = raw[4], epoch = raw[5], scope = raw[6],
             digest = raw[7], worker = raw[8], keep = raw[9], park_due = raw[10], park_data = payload(raw[11]),
             park_attempt = raw[12], creates = raw[13], events = raw[14], effects = raw[15] }
end

-- The static part of an execution, field by field; it is read back as it is.
local function create_run(t, now)
    local new, run = t.creates, new_run(t.base, t.execution)
    run.state, run.definition, run.epoch, run.seq, run.live, run.touched_at = 'RUNNING', new[4], 0, 0, 0, now
    run.about.row = cmsgpack.pack({ new[2], new[3], new[4], new[6], new[7], new[8], new[9], or_false(new[10]),
                                    or_false(new[11]), or_false(new[12]) })
    run.about.input = payload(new[5])
    runs[t.execution] = run
    return run
end

-- Why a token's transition is refused, or nil.
local function refuse_step(t, run, token)
    if not token then return run.ended_at and 'finished' or 'unknown' end
    if token.state ~= 'leased' or token.fence ~= t.fence then
        if token.digest == t.digest then return 'applied' end
        return run.ended_at and 'finished' or 'fence'
    end
    if run.ended_at then return 'finished' end
    if t.epoch ~= run.epoch then return 'version' end
    if is_closed(run, token.scope) then return 'scope' end
end

-- Why a command from outside is refused, or nil.
local function refuse_command(t, run)
    if run.ended_at then return 'finished' end
    if is_closed(run, t.scope) then return 'scope' end
    local first = t.effects[1] and t.effects[1][1]
    if first == 'PauseExecution' and run.state == 'PAUSED' then return 'applied' end
    if first == 'ResumeExecution' and run.state ~= 'PAUSED' then return 'applied' end
end

-- Consumes the token, or puts it to sleep under a new attempt.
local function release_token(work, t, token)
    if not t.park_attempt then
        if token.live then count(work, token.scope, -1) end
        finish_token(work.run, token, t.digest)
        return
    end
    change(work.run, token)
    token.state, token.owner, token.digest, token.data = 'parked', nil, t.digest, t.park_data
    token.attempt, token.due, token.losses, token.reason = t.park_attempt, t.park_due, 0, ''
    note_due(work, token.due)
end

local function apply(work, t)
    for _, event in ipairs(t.events) do record(work, to_event(event)) end
    for _, raw in ipairs(t.effects) do EFFECTS[raw[1]](work, to_effect(raw)) end
    close_gates(work)
    write_counts(work)
    for _, effect in ipairs(work.endings) do end_if_last(work, effect) end
    local run = work.run
    run.touched_at, run.changed = work.now, true
    return { 'Applied', false, work.kept, work.ready, run.ended_at and run.state or false, or_false(work.next_due) }
end

local function settle(t, now)
    local run, token, refusal = load_run(t.base, t.execution), nil, nil
    if not t.token and t.creates then
        if run then refusal = 'applied' else run = create_run(t, now) end
    elseif not run then
        refusal = 'unknown'
    elseif t.token then
        token = load_token(run, t.token)
        refusal = refuse_step(t, run, token)
    else
        refusal = refuse_command(t, run)
    end
    if refusal == 'applied' then return { 'AlreadyApplied' } end
    if refusal then return { 'Stale', refusal } end
    local work = { run = run, now = now, token = t.token, worker = t.worker, keep = {}, counts = {}, gates = {},
                   endings = {}, ready = {}, kept = {} }
    for _, id in ipairs(t.keep) do work.keep[id] = true end
    if token then release_token(work, t, token) end
    return apply(work, t)
end

-- Reads each execution and the tokens that transitions name, before any of them is settled.
local function load_all(transitions)
    local named, order = {}, {}
    for _, t in ipairs(transitions) do
        local ids = named[t.execution]
        if not ids then
            ids = { base = t.base }
            named[t.execution], order[#order + 1] = ids, t.execution
        end
        if t.token then ids[#ids + 1] = t.token end
        for _, raw in ipairs(t.effects) do
            if raw[1] == 'SpawnToken' then ids[#ids + 1] = raw[8][1] end
        end
    end
    for _, execution in ipairs(order) do load_run(named[execution].base, execution, named[execution]) end
end

local now, transitions, outcomes = time_of(ARGV[1]), {}, {}
for place, raw in ipairs(cmsgpack.unpack(ARGV[FIRST_ARGUMENT])) do transitions[place] = to_transition(raw) end
load_all(transitions)
for place, t in ipairs(transitions) do outcomes[place] = settle(t, now) end
write_all()
return cmsgpack.pack({ now, outcomes })
