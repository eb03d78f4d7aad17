-- Writing everything that was decided. Nothing above this file writes.

-- A number for the order of things that happen at the same instant.
local turn_now
local function next_turn()
    turn_now = (turn_now or tonumber(redis.call('GET', KEY.turn) or '0')) + 1
    return turn_now
end

-- Names a token among all executions: in timers and among the ready ones. The length makes it unambiguous.
local function member_of(run, token)
    return #run.id .. ':' .. run.id .. ':' .. token.id
end

local function split_member(member)
    local length, rest = string.match(member, '^(%d+):(.*)$')
    length = tonumber(length)
    return string.sub(rest, 1, length), string.sub(rest, length + 2)
end

-- Among ready tokens of one priority age decides, then the order in which they became ready.
local function ready_member(run, token)
    return string.format('%017.0f%014.0f', token.ready_at * 1e6, token.turn) .. member_of(run, token)
end

local function write_token(run, token)
    local base, member = run.base, member_of(run, token)
    if token.was_ready then redis.call('ZREM', KEY.ready .. token.queue, token.was_ready) end
    if token.was_due then redis.call('ZREM', KEY.timers, member) end
    if token.state == 'done' then
        redis.call('HDEL', base .. SUFFIX.tokens, token.id)
        redis.call('HDEL', base .. SUFFIX.data, token.id)
        redis.call('HSET', base .. SUFFIX.done, token.id, token.digest or '')
        return
    end
    redis.call('HSET', base .. SUFFIX.tokens, token.id, pack_token(token))
    if token.data then redis.call('HSET', base .. SUFFIX.data, token.id, token.data) end
    if token.state == 'ready' then
        redis.call('ZADD', KEY.ready .. token.queue, -token.priority, ready_member(run, token))
    elseif token.state == 'parked' and token.due then
        redis.call('ZADD', KEY.timers, string.format('%.17g', token.due * 1000), member)
    end
end

local function write_rows(run)
    local base = run.base
    for path, scope in pairs(run.scopes) do
        if scope and scope.changed then
            local packed = cmsgpack.pack({ scope.barrier, scope.slot, scope.live, scope.ended })
            redis.call('HSET', base .. SUFFIX.scopes, path, packed)
        end
    end
    for id, b in pairs(run.barriers) do
        if b and b.changed then
            local packed = cmsgpack.pack({ b.scope, b.node, b.state, b.mode, b.expected, b.resolved, b.live,
                or_false(b.deadline), b.join, or_false(b.milestone_at), or_false(b.milestone_token) })
            redis.call('HSET', base .. SUFFIX.barriers, id, packed)
        end
    end
    for id, gate in pairs(run.gates) do
        if gate and gate.changed then
            redis.call('HSET', base .. SUFFIX.gates, id, cmsgpack.pack({ gate.count, gate.used }))
        end
    end
end

local function write_payloads(run)
    local base = run.base
    for barrier, slots in pairs(run.slots) do
        for slot, value in pairs(slots) do redis.call('HSET', base .. SUFFIX.slots .. barrier, slot, value) end
    end
    for scope, left in pairs(run.left) do
        for key, data in pairs(left) do redis.call('HSET', base .. SUFFIX.left .. scope, key, data) end
    end
    for id, data in pairs(run.outputs) do redis.call('HSET', base .. SUFFIX.outputs, id, data) end
    for field, value in pairs(run.about) do redis.call('HSET', base .. SUFFIX.about, field, value) end
    for _, entry in ipairs(run.outbox) do
        if redis.call('HSETNX', KEY.outbox_entries, entry.id, entry.data) == 1 then
            redis.call('HSET', KEY.outbox_about, entry.id, cmsgpack.pack({ run.id, entry.topic }))
            redis.call('ZADD', KEY.outbox, next_turn(), entry.id)
        end
    end
end

local function write_all()
    for _, run in pairs(runs) do
        for _, token in pairs(run.tokens) do
            if token and token.changed then write_token(run, token) end
        end
        write_rows(run)
        write_payloads(run)
        if run.changed then
            redis.call('SET', run.base .. SUFFIX.flight, cmsgpack.pack({ run.state, run.definition, run.epoch,
                run.seq, run.live, run.touched_at, or_false(run.paused_at), or_false(run.ended_at) }))
        end
    end
    for _, event in ipairs(appended) do
        redis.call('XADD', KEY.events, '*', 'execution', event.execution, 'event', event.packed,
                   'data', event.data or '')
    end
    if turn_now then redis.call('SET', KEY.turn, string.format('%.0f', turn_now)) end
end
