-- Rows of executions, cached for one call.
--
-- A row is read when first asked for and written once, when everything has been decided: a script that fails before
-- `write_all` has changed nothing. Rows are kept as small msgpack arrays in which `false` stands for nothing;
-- payloads lie beside them as they came. Every row belongs to an execution `run`, whose `base` is the beginning of
-- all its keys. Key names come from keys.py as SUFFIX.

local runs = {}     -- execution id → run
local appended = {} -- events in the order in which they were recorded

local function or_nil(value)
    if value == false then return nil end
    return value
end

local function or_false(value)
    if value == nil then return false end
    return value
end

-- Executions and their tokens -----------------------------------------------------------------------------------

local function new_run(base, id)
    return { base = base, id = id, tokens = {}, scopes = {}, barriers = {}, gates = {}, slots = {}, left = {},
             outputs = {}, outbox = {}, about = {} }
end

local function unpack_token(id, packed)
    local row = cmsgpack.unpack(packed)
    return { id = id, scope = row[1], kind = row[2], node = row[3], state = row[4], queue = row[5],
             priority = row[6], limit_key = or_nil(row[7]), live = row[8], attempt = row[9], losses = row[10],
             reason = row[11], due = or_nil(row[12]), owner = or_nil(row[13]), fence = row[14],
             barrier = or_nil(row[15]), ready_at = row[16], digest = or_nil(row[17]), turn = or_nil(row[18]) }
end

-- Reads tokens, two calls for all: an unfinished one is a row, a finished one has left its digest.
local function load_tokens(run, ids, first)
    local fields = { run.base .. SUFFIX.state, first }
    for _, id in ipairs(ids) do fields[#fields + 1] = TOKEN .. id end
    if #fields == 1 then return nil end
    local rows, shift = redis.call('HMGET', unpack(fields)), first and 1 or 0
    local absent = { run.base .. SUFFIX.done }
    for place, id in ipairs(ids) do
        local packed = rows[place + shift]
        run.tokens[id] = packed and unpack_token(id, packed) or false
        if not packed then absent[#absent + 1] = id end
    end
    if #absent > 1 then
        for place, digest in ipairs(redis.call('HMGET', unpack(absent))) do
            local id = absent[place + 1]
            if digest then run.tokens[id] = { id = id, state = 'done', digest = digest, fence = -1 } end
        end
    end
    return first and rows[1]
end

-- The execution, or nil when there is none. Tokens that will be asked for are best named here.
local function load_run(base, id, tokens)
    local run = runs[id]
    if run ~= nil then return or_nil(run) end
    run = new_run(base, id)
    local packed = load_tokens(run, tokens or {}, 'flight')
    runs[id] = packed and run or false
    if not packed then return nil end
    local row = cmsgpack.unpack(packed)
    run.state, run.definition, run.epoch, run.seq, run.live = row[1], row[2], row[3], row[4], row[5]
    run.touched_at, run.paused_at, run.ended_at = row[6], or_nil(row[7]), or_nil(row[8])
    return run
end

local function load_token(run, id)
    if run.tokens[id] == nil then load_tokens(run, { id }) end
    return or_nil(run.tokens[id])
end

local function pack_token(token)
    return cmsgpack.pack({ token.scope, token.kind, token.node, token.state, token.queue, token.priority,
        or_false(token.limit_key), token.live, token.attempt, token.losses, token.reason, or_false(token.due),
        or_false(token.owner), token.fence, or_false(token.barrier), token.ready_at, or_false(token.digest),
        or_false(token.turn) })
end

-- Ids of all unfinished tokens, those of this call included.
local function unfinished_ids(run)
    local ids = {}
    for _, field in ipairs(redis.call('HKEYS', run.base .. SUFFIX.state)) do
        local id = string.match(field, '^' .. TOKEN .. '(.*)$')
        if id then load_token(run, id) end
    end
    for id, token in pairs(run.tokens) do
        if token and token.state ~= 'done' then ids[#ids + 1] = id end
    end
    table.sort(ids)
    return ids
end

-- Scopes, barriers, gates -----------------------------------------------------------------------------------------

local function load_scope(run, path)
    local scope = run.scopes[path]
    if scope == nil then
        local packed = redis.call('HGET', run.base .. SUFFIX.scopes, path)
        scope = false
        if packed then
            local row = cmsgpack.unpack(packed)
            scope = { barrier = row[1], slot = row[2], live = row[3], ended = row[4] }
        end
        run.scopes[path] = scope
    end
    return or_nil(scope)
end

local function load_barrier(run, id)
    local barrier = run.barriers[id]
    if barrier == nil then
        local packed = redis.call('HGET', run.base .. SUFFIX.barriers, id)
        barrier = false
        if packed then
            local row = cmsgpack.unpack(packed)
            barrier = { id = id, scope = row[1], node = row[2], state = row[3], mode = row[4], expected = row[5],
                        resolved = row[6], live = row[7], deadline = or_nil(row[8]), join = row[9],
                        milestone_at = or_nil(row[10]), milestone_token = or_nil(row[11]) }
        end
        run.barriers[id] = barrier
    end
    return or_nil(barrier)
end

local function load_gate(run, id)
    local gate = run.gates[id]
    if gate == nil then
        local packed = redis.call('HGET', run.base .. SUFFIX.gates, id)
        gate = false
        if packed then
            local row = cmsgpack.unpack(packed)
            gate = { count = row[1], used = row[2] }
        end
        run.gates[id] = gate
    end
    return or_nil(gate)
end

-- Slots and contexts: written once, asked only whether they are there ----------------------------------------------

local function has_slot(run, barrier, slot)
    local known = run.slots[barrier]
    if known and known[slot] then return true end
    return redis.call('HEXISTS', run.base .. SUFFIX.slots .. barrier, slot) == 1
end

-- 'L' and its data for a live slot, 'N' for a live one without data, 'S' for a skipped one.
local function add_slot(run, barrier, slot, live, data)
    run.slots[barrier] = run.slots[barrier] or {}
    run.slots[barrier][slot] = live and (data and 'L' .. data or 'N') or 'S'
end

local function has_left(run, scope)
    return run.left[scope] ~= nil or redis.call('EXISTS', run.base .. SUFFIX.left .. scope) == 1
end

local function add_left(run, scope, key, data)
    run.left[scope] = run.left[scope] or {}
    run.left[scope][key] = data
end

-- A scope is closed once it, a scope around it, or the barrier any of them feeds has ended (L5).
local function is_closed(run, path)
    while path ~= '' do
        local scope = load_scope(run, path)
        if not scope or scope.ended then return true end
        local barrier = load_barrier(run, scope.barrier)
        if not barrier or barrier.state ~= 'waiting' then return true end
        path = string.match(path, '^(.*)/[^/]*$') or ''
    end
    return false
end
