-- How each effect changes its execution. EFFECTS maps an effect's kind to what it does.

local function finish(work, ending)
    local run = work.run
    run.state, run.ended_at, run.paused_at = ending.state, work.now, nil
    run.about.output, run.about.context, run.about.error = ending.output, ending.context, ending.error
    record(work, ending.event)
end

-- Judged after all other effects of its transition (see the model's EndIfLast).
local function end_if_last(work, effect)
    local run, live = work.run, work.run.live
    if run.ended_at then return end
    if effect.scope ~= '' then
        local scope = load_scope(run, effect.scope)
        live = scope and scope.live or 0
    end
    if live == 0 and (effect.finish or effect.slot_data) and not has_left(run, effect.scope) then
        if effect.finish then
            finish(work, effect.finish)
        else
            end_scope(work, effect.scope, effect.slot_data, false, effect.event)
        end
        return
    end
    if effect.data then add_left(run, effect.scope, effect.name, effect.data) end
    if live == 0 then
        spawn(work, effect.token)
        write_counts(work)
    end
end

local function adjust_gate(work, effect)
    local spec = effect.gate
    local gate = load_gate(work.run, spec.id)
    if not gate then
        gate = { count = spec.open_edges, used = {} }
        work.run.gates[spec.id] = gate
    end
    gate.count = gate.count + effect.number
    gate.changed = true
    for _, position in ipairs(effect.used or {}) do gate.used[#gate.used + 1] = position end
    work.gates[#work.gates + 1] = spec
end

-- Judged by the sum of all adjustments: an edge that becomes a visit in one transition closes nothing.
local function close_gates(work)
    for _, spec in ipairs(work.gates) do
        if load_gate(work.run, spec.id).count == 0 then spawn(work, spec.closed) end
    end
end

-- Drops the live tokens of a scope that stand at these nodes, all but the one being consumed.
local function cancel_tokens(work, effect)
    local run, nodes = work.run, {}
    for _, node in ipairs(effect.nodes) do nodes[node] = true end
    for _, id in ipairs(unfinished_ids(run)) do
        local token = run.tokens[id]
        if token.scope == effect.scope and nodes[token.node] and id ~= work.token then
            if token.live then
                count(work, token.scope, -1)
                record(work, { kind = 'NodeCancelled', node = token.node, scope = token.scope, at = work.now,
                               token = id })
            end
            finish_token(run, token, token.digest)
            local barrier = token.barrier and load_barrier(run, token.barrier)
            if barrier and barrier.state == 'waiting' then barrier.state, barrier.changed = 'cancelled', true end
        end
    end
end

local function pause(work, effect)
    work.run.state, work.run.paused_at = 'PAUSED', work.now
    record(work, effect.event)
end

-- Held tokens become ready in due order; deadlines sleep on for as long as was paused.
local function resume(work, effect)
    local run, held = work.run, {}
    local paused_for = work.now - (run.paused_at or work.now)
    record(work, effect.event)
    run.state, run.paused_at = 'RUNNING', nil
    for _, id in ipairs(unfinished_ids(run)) do
        local token = run.tokens[id]
        if token.kind == 'deadline' and token.due and (token.state == 'parked' or token.state == 'held') then
            change(run, token)
            token.due, token.state = token.due + paused_for, 'parked'
            note_due(work, token.due)
        elseif token.state == 'held' then
            held[#held + 1] = token
        end
    end
    table.sort(held, function(a, b)
        local first, second = a.due or a.ready_at, b.due or b.ready_at
        if first ~= second then return first < second end
        return a.id < b.id
    end)
    for _, token in ipairs(held) do
        change(run, token)
        make_ready(work, token)
    end
end

local EFFECTS = {
    CreateExecution = function() end, -- the command's own handling created it
    SpawnToken = function(work, effect) spawn(work, effect.token) end,
    ResolveSlot = arrive,
    OpenBarrier = function(work, effect)
        if load_barrier(work.run, effect.barrier.id) then return end
        local barrier = create_barrier(work, effect.barrier)
        if effect.milestone then set_milestone(work, barrier, effect.milestone) end
    end,
    SetMilestone = function(work, effect)
        local barrier = load_barrier(work.run, effect.name)
        if barrier and barrier.state == 'waiting' then set_milestone(work, barrier, effect.milestone) end
    end,
    OpenScope = function(work, effect)
        if load_scope(work.run, effect.scope) then return end
        work.run.scopes[effect.scope] = { barrier = effect.name, slot = effect.number, live = 0, ended = false,
                                          changed = true }
    end,
    EndScope = function(work, effect)
        end_scope(work, effect.scope, effect.data, effect.flag, effect.event)
    end,
    LeaveContext = function(work, effect) add_left(work.run, effect.scope, effect.name, effect.data) end,
    EndIfLast = function(work, effect) work.endings[#work.endings + 1] = effect end,
    FinishExecution = function(work, effect) finish(work, effect.finish) end,
    AdjustGate = adjust_gate,
    StoreOutput = function(work, effect) work.run.outputs[effect.name] = effect.data end,
    CancelTokens = cancel_tokens,
    PauseExecution = pause,
    ResumeExecution = resume,
    WriteOutbox = function(work, effect)
        table.insert(work.run.outbox, { id = effect.name, topic = effect.scope, data = effect.data })
    end,
}
