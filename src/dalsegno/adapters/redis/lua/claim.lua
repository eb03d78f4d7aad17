-- Leases ready tokens by priority, then age (L1, L9). Looks at no more than `LOOK` tokens in one call.
-- Tokens that may not run are put where claims no longer find them: gone with their execution or scope, held while
-- their execution is paused.
--
-- KEYS  those of 0_keys.lua; which executions a queue leads to is known only inside
-- ARGV  those of 0_keys.lua, then 5 worker · 6 how many · 7… queues
-- Reply { rows as msgpack in the order of Lease's fields without data, 'more' or '', payloads… }; 'more': there may be
--       more, but this call has looked at enough

local LOOK = 500
local worker, wanted, rows, data, looked = ARGV[5], tonumber(ARGV[6]), {}, {}, 0

-- The best of all queues' heads, taken out of its queue.
local heads = {}
local function pop_best()
    local best
    for i = 7, #ARGV do
        local queue = KEY.ready .. ARGV[i]
        if heads[queue] == nil then
            local found = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
            heads[queue] = found[1] and { queue = queue, member = found[1], score = tonumber(found[2]) } or false
        end
        local head = heads[queue]
        if head and (not best or head.score < best.score
                     or (head.score == best.score and head.member < best.member)) then
            best = head
        end
    end
    if best then
        redis.call('ZREM', best.queue, best.member)
        heads[best.queue] = nil
    end
    return best
end

local function lease(run, token)
    token.state, token.owner, token.fence = 'leased', worker, token.fence + 1
    rows[#rows + 1] = { token.id, run.id, token.fence, token.scope, token.kind, token.node, token.queue,
                        token.priority, token.attempt, token.losses, token.reason, token.ready_at, run.definition,
                        run.epoch, token.live }
    data[#data + 1] = redis.call('HGET', run.base .. SUFFIX.state, DATA .. token.id) or ''
end

while #rows < wanted and looked < LOOK do
    local head = pop_best()
    if not head then break end
    looked = looked + 1
    local execution, id = split_member(string.sub(head.member, 32))
    local run = load_run(KEY.exec .. execution, execution, { id })
    local token = run and load_token(run, id)
    if token and token.state == 'ready' then
        token.changed = true
        if run.ended_at or is_closed(run, token.scope) then
            token.state = 'done'
        elseif run.state == 'PAUSED' then
            token.state = 'held'
        else
            lease(run, token)
        end
    end
end
write_all()
return { cmsgpack.pack(rows), looked >= LOOK and 'more' or '', unpack(data) }
