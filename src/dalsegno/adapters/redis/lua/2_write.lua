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

-- One call for all fields of a key; `fields` is { key, field, value, … }.
local function call_once(command, fields)
    if #fields > 1 then redis.call(command, unpack(fields)) end
end

-- Takes a token out where it stood, and puts it where it stands now.
local function move_token(run, token)
    if token.was_ready then redis.call('ZREM', KEY.ready .. token.queue, token.was_ready) end
    if token.was_due then redis.call('ZREM', KEY.timers, member_of(run, token)) end
    if token.state == 'ready' then
        redis.call('ZADD', KEY.ready .. token.queue, -token.priority, ready_member(run, token))
    elseif token.state == 'parked' and token.due then
        redis.call('ZADD', KEY.timers, string.format('%.17g', token.due * 1000), member_of(run, token))
    end
end

local function write_state(run)
    local state, gone, done = { run.base .. SUFFIX.state }, { run.base .. SUFFIX.state }, { run.base .. SUFFIX.done }
    if run.changed then
        state[2], state[3] = 'flight', cmsgpack.pack({ run.state, run.definition, run.epoch, run.seq, run.live,
            run.touched_at, or_false(run.paused_at), or_false(run.ended_at) })
    end
    for id, token in pairs(run.tokens) do
        if token and token.changed then
            move_token(run, token)
            if token.state == 'done' then
                gone[#gone + 1], gone[#gone + 2] = TOKEN .. id, DATA .. id
                done[#done + 1], done[#done + 2] = id, token.digest or ''
            else
                state[#state + 1], state[#state + 2] = TOKEN .. id, pack_token(token)
                if token.data then state[#state + 1], state[#state + 2] = DATA .. id, token.data end
            end
        end
    end
    call_once('HSET', state)
    call_once('HDEL', gone)
    call_once('HSET', done)
end

local function write_rows(run)
    local scopes, barriers = { run.base .. SUFFIX.scopes }, { run.base .. SUFFIX.barriers }
    local gates = { run.base .. SUFFIX.gates }
    for path, scope in pairs(run.scopes) do
        if scope and scope.changed then
            scopes[#scopes + 1], scopes[#scopes + 2] = path,
                cmsgpack.pack({ scope.barrier, scope.slot, scope.live, scope.ended })
        end
    end
    for id, b in pairs(run.barriers) do
        if b and b.changed then
            barriers[#barriers + 1], barriers[#barriers + 2] = id,
                cmsgpack.pack({ b.scope, b.node, b.state, b.mode, b.expected, b.resolved, b.live,
                    or_false(b.deadline), b.join, or_false(b.milestone_at), or_false(b.milestone_token) })
        end
    end
    for id, gate in pairs(run.gates) do
        if gate and gate.changed then
            gates[#gates + 1], gates[#gates + 2] = id, cmsgpack.pack({ gate.count, gate.used })
        end
    end
    call_once('HSET', scopes)
    call_once('HSET', barriers)
    call_once('HSET', gates)
end

-- A hash with these fields, or more of them.
local function write_hash(key, values)
    local fields = { key }
    for field, value in pairs(values) do fields[#fields + 1], fields[#fields + 2] = field, value end
    call_once('HSET', fields)
end

local function write_payloads(run)
    for barrier, slots in pairs(run.slots) do write_hash(run.base .. SUFFIX.slots .. barrier, slots) end
    for scope, left in pairs(run.left) do write_hash(run.base .. SUFFIX.left .. scope, left) end
    write_hash(run.base .. SUFFIX.outputs, run.outputs)
    write_hash(run.base .. SUFFIX.about, run.about)
    for _, entry in ipairs(run.outbox) do
        if redis.call('HSETNX', KEY.outbox_entries, entry.id, entry.data) == 1 then
            redis.call('HSET', KEY.outbox_about, entry.id, cmsgpack.pack({ run.id, entry.topic }))
            redis.call('ZADD', KEY.outbox, next_turn(), entry.id)
        end
    end
end

local function write_all()
    for _, run in pairs(runs) do
        if run then
            write_state(run)
            write_rows(run)
            write_payloads(run)
        end
    end
    for _, event in ipairs(appended) do
        redis.call('XADD', KEY.events, '*', 'execution', event.execution, 'event', event.packed,
                   'data', event.data or '')
    end
    if turn_now then redis.call('SET', KEY.turn, string.format('%.0f', turn_now)) end
end
