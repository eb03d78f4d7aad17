-- Removes copies of tasks, delivered or not.
-- KEYS: places, the streams of the queue. ARGV: ids and fences.
local removed = 0
for _, name in ipairs(ARGV) do
    local place = redis.call('HGET', KEYS[1], name)
    if place then
        local number, entry = string.match(place, '^(%d) (%S+)')
        local stream = KEYS[1 + tonumber(number)]
        redis.call('XACK', stream, 'workers', entry)
        redis.call('XDEL', stream, entry)
        redis.call('HDEL', KEYS[1], name)
        removed = removed + 1
    end
end
return removed
