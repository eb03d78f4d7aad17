-- Barriers: slots resolve once, the barrier opens once (L7).

-- The join token counts as live from here on, and the barrier's deadline runs.
local function park_join(work, barrier, spec)
    if spec.timeout then barrier.deadline = work.now + spec.timeout end
    local token = add_token(work, spec.join, 'parked')
    token.barrier = barrier.id
    token.due = barrier.deadline
    count(work, token.scope, 1)
    note_due(work, token.due)
    return token
end

local function create_barrier(work, spec)
    local barrier = { id = spec.id, scope = spec.scope, node = spec.node, state = 'waiting', mode = spec.mode,
                      expected = spec.expected, resolved = 0, live = 0, join = spec.join.id, changed = true }
    work.run.barriers[spec.id] = barrier
    if spec.live_at_once then park_join(work, barrier, spec) end
    return barrier
end

-- A parked token wakes for this reason, if it is still parked.
local function wake_token(work, id, reason)
    local token = load_token(work.run, id)
    if not token or token.state ~= 'parked' then return end
    change(work.run, token)
    token.reason, token.due = reason, nil
    make_ready(work, token)
end

local function open_barrier(work, barrier, state)
    barrier.state = state
    barrier.changed = true
    wake_token(work, barrier.join, state)
end

-- An edge of a merge or join resolves its slot, live or skipped; what comes too late is dropped.
local function arrive(work, effect)
    local spec = effect.barrier
    local barrier = load_barrier(work.run, spec.id) or create_barrier(work, spec)
    if barrier.state ~= 'waiting' or has_slot(work.run, spec.id, effect.number) then
        if effect.dropped then record(work, effect.dropped) end
        return
    end
    add_slot(work.run, spec.id, effect.number, effect.flag, effect.data)
    barrier.changed = true
    barrier.resolved = barrier.resolved + 1
    if effect.flag then
        barrier.live = barrier.live + 1
        if barrier.live == 1 then park_join(work, barrier, spec) end
    end
    local complete = barrier.resolved >= barrier.expected
    if barrier.live > 0 and (complete or barrier.mode == 'any') then
        open_barrier(work, barrier, 'open')
    elseif complete then -- every slot was skipped: the join token is born ready
        spec.timeout = nil
        park_join(work, barrier, spec)
        open_barrier(work, barrier, 'dead')
    elseif effect.event then
        record(work, effect.event, barrier.live, barrier.expected)
    end
end

local function reach_milestone(work, barrier)
    if not barrier.milestone_at or barrier.resolved < barrier.milestone_at then return end
    local id = barrier.milestone_token
    barrier.milestone_at, barrier.milestone_token = nil, nil
    wake_token(work, id, '')
end

local function set_milestone(work, barrier, milestone)
    if not load_token(work.run, milestone.token.id) then add_token(work, milestone.token, 'parked') end
    barrier.milestone_at, barrier.milestone_token = milestone.resolved, milestone.token.id
    barrier.changed = true
    reach_milestone(work, barrier)
end

-- An item's scope ends: its slot of the split's barrier is resolved, once.
local function end_scope(work, path, data, trip, event)
    local scope = load_scope(work.run, path)
    if not scope or scope.ended then return end
    scope.ended, scope.changed = true, true
    local barrier = load_barrier(work.run, scope.barrier)
    if not barrier or barrier.state ~= 'waiting' then return end
    add_slot(work.run, barrier.id, scope.slot, true, data)
    barrier.changed = true
    barrier.resolved, barrier.live = barrier.resolved + 1, barrier.live + 1
    if trip then
        open_barrier(work, barrier, 'tripped')
    elseif barrier.resolved >= barrier.expected then
        open_barrier(work, barrier, 'open')
    else
        reach_milestone(work, barrier)
        if event then record(work, event, barrier.resolved, barrier.expected) end
    end
end
