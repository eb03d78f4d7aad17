-- Remove timers that were handed over. One that was planted again meanwhile keeps its payload.
-- KEYS: scheduler:timers, scheduler:payloads, scheduler:processing
-- ARGV: the timers
for _, id in ipairs(ARGV) do
  redis.call('ZREM', KEYS[3], id)
  if not redis.call('ZSCORE', KEYS[1], id) then
    redis.call('HDEL', KEYS[2], id)
  end
end
return redis.status_reply('OK')
