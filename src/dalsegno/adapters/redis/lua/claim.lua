-- Leases ready tokens by priority, then age (L1, L9). Looks at no more than `LOOK` tokens in one call.
-- Tokens that may not run are put where claims no longer find them: gone with their execution or scope, held while
-- their execution is paused.
--
-- KEYS  none: which executions a queue leads to is known only inside
-- ARGV  1 worker · 2 how many · 3… queues
-- Reply msgpack rows in the order of Lease's fields without data, and the payloads: { rows, data, data, … };
--       an empty reply with more to look at ends with 'more'

local LOOK = 500
local worker, wanted, rows, data, looked = ARGV[1], tonumber(ARGV[2]), {}, {}, 0

-- The best of all queues' heads, taken out of its queue.
local heads = {}
local function pop_best()
    local best
    for i = 3, #ARGV do
        local queue = PREFIX.ready .. ARGV[i]
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
    data[#data + 1] = redis.call('HGET', run.base .. SUFFIX.data, token.id) or ''
end

while #rows < wanted and looked < LOOK do
    local head = pop_best()
    if not head then break end
    looked = looked + 1
    local execution, id = split_member(string.sub(head.member, 32))
    local run = load_run(PREFIX.exec .. execution, execution)
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
