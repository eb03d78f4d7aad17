-- Claim timers that are due, for one scheduler at a time.
-- KEYS: scheduler:timers, scheduler:processing, the turn
-- ARGV: the scheduler, its turn in ms, how old a claim is before anybody takes it over in ms, the most to claim
-- Returns {0, ms until the other's turn may end}, or {1, claimed anew, taken over}.
-- The time is the server's, so that schedulers whose clocks differ agree.
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[3])}
end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = tonumber(ARGV[4])
local stale = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3], 'LIMIT', 0, most)
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
return {1, due, stale}
