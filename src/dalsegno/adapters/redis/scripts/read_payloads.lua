-- Read payloads of timers, as many from the first on as fit into a number of bytes, but at least one.
-- KEYS: scheduler:payloads
-- ARGV: the most bytes of one, the most bytes together, the bytes that are shown of a larger one, timers
-- Returns {size, payload} for each that was read. Of one that is too large the payload is only its beginning.
local largest, together, shown = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local found, total = {}, 0
for at = 4, #ARGV do
  local size = redis.call('HSTRLEN', KEYS[1], ARGV[at])
  local kept = size > largest and shown or size
  if total > 0 and total + kept > together then
    break
  end
  total = total + kept
  local payload = redis.call('HGET', KEYS[1], ARGV[at])
  if size > largest then
    payload = string.sub(payload, 1, shown)
  end
  found[#found + 1] = {size, payload}
end
return found
