-- Where everything lies. All names are built in keys.py; this file only receives them.
--
-- KEYS  1 timers · 2 events · 3 turn · 4 outbox · 5 outbox payloads · 6 outbox addresses
-- ARGV  1 the time in Unix seconds, or '' for the server's · 2 what every execution's keys begin with
--       3 what every queue of ready tokens begins with · 4 msgpack: the endings of an execution's keys by name

local KEY = { timers = KEYS[1], events = KEYS[2], turn = KEYS[3], outbox = KEYS[4], outbox_entries = KEYS[5],
              outbox_about = KEYS[6], exec = ARGV[2], ready = ARGV[3] }
local SHARED_KEYS, FIRST_ARGUMENT = 6, 5
local SUFFIX = cmsgpack.unpack(ARGV[4])
local TOKEN, DATA = SUFFIX.token_field, SUFFIX.data_field

local function time_of(given)
    if given ~= '' then return tonumber(given) end
    local time = redis.call('TIME')
    return tonumber(time[1]) + tonumber(time[2]) / 1e6
end
