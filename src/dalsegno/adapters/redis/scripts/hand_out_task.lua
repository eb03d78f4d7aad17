-- Adds the copy of a task to its stream, and notes where it lies.
-- KEYS: stream, places. ARGV: the task, its id and fence, the number of the stream among its queue's, its deadline.
redis.pcall('XGROUP', 'CREATE', KEYS[1], 'workers', '0', 'MKSTREAM')
local entry = redis.call('XADD', KEYS[1], '*', 'task', ARGV[1])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3] .. ' ' .. entry .. ' ' .. ARGV[4])
return entry
