-- Makes due tokens ready, in due order. A barrier whose deadline passed is timed out with its join token; while its
-- execution is paused a token is held, and the execution's own deadline waits for the resume that moves it.
--
-- KEYS  those of 0_keys.lua; which executions the timers belong to is known only inside
-- ARGV  those of 0_keys.lua, then 5 how many (at most 500)
-- Reply msgpack: { { token, execution, queue, priority }…, next due in seconds or false }

local now, rows = time_of(ARGV[1]), {}
local due = redis.call('ZRANGE', KEY.timers, '-inf', string.format('%.17g', now * 1000), 'BYSCORE',
                       'LIMIT', 0, tonumber(ARGV[5]))

local function wake(run, token, paused)
    local work = { run = run, now = now, ready = {} }
    if paused and token.kind == 'deadline' then
        token.state = 'held'
        return
    end
    token.reason = 'timer'
    local barrier = token.barrier and load_barrier(run, token.barrier)
    if barrier and barrier.state == 'waiting' then barrier.state, barrier.changed = 'timeout', true end
    -- One that was woken by its barrier and put to sleep again is woken for the same reason.
    if token.barrier then token.reason = barrier and barrier.state ~= 'cancelled' and barrier.state or 'timeout' end
    make_ready(work, token)
    if token.state == 'ready' then
        rows[#rows + 1] = { token.id, run.id, token.queue, token.priority }
    end
end

for _, member in ipairs(due) do
    local execution, id = split_member(member)
    local run = load_run(KEY.exec .. execution, execution, { id })
    local token = run and load_token(run, id)
    if token and token.state == 'parked' and token.due then
        change(run, token)
        if run.ended_at or is_closed(run, token.scope) then
            token.state = 'done'
        else
            wake(run, token, run.state == 'PAUSED')
        end
    else
        redis.call('ZREM', KEY.timers, member)
    end
end
write_all()

-- The score is in milliseconds; the token knows its time exactly.
local function next_due()
    local member = redis.call('ZRANGE', KEY.timers, 0, 0)[1]
    if not member then return false end
    local execution, id = split_member(member)
    local run = load_run(KEY.exec .. execution, execution, { id })
    local token = run and load_token(run, id)
    return token and token.due or now
end

return cmsgpack.pack({ rows, next_due() })
