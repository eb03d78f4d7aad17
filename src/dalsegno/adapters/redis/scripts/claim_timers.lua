-- Claim timers that are due, and those whose claim is old.
-- KEYS: scheduler:timers, scheduler:processing
-- ARGV: how old a claim is before anybody takes it over in ms, the most to claim
-- Returns {claimed anew, taken over, the time in ms}. The time is the server's: clocks of schedulers may differ.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = tonumber(ARGV[2])
local stale = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[1], 'LIMIT', 0, most)
local due = {}
if #stale < most then
  due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, most - #stale)
end
for _, id in ipairs(stale) do
  redis.call('ZADD', KEYS[2], now, id)
end
for _, id in ipairs(due) do
  redis.call('ZADD', KEYS[2], now, id)
  redis.call('ZREM', KEYS[1], id)
end
return {due, stale, now}
