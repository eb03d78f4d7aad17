-- What every effect needs: history, counters, tokens that come, wake and go.
-- `work` is one transition being applied to `work.run`; `work.counts` sums changes of live counts.

-- Records an event under the next number of its execution (L8).
local function record(work, event, arrived, expected)
    local run = work.run
    run.seq = run.seq + 1
    appended[#appended + 1] = {
        execution = run.id, data = event.data,
        packed = cmsgpack.pack({ run.seq, event.kind, event.node, event.scope, event.at, event.data ~= nil,
                                 or_false(event.token), or_false(arrived), or_false(expected) }),
    }
end

local function count(work, scope, delta)
    work.counts[scope] = (work.counts[scope] or 0) + delta
end

local function write_counts(work)
    for path, delta in pairs(work.counts) do
        if path == '' then
            work.run.live = work.run.live + delta
        else
            local scope = load_scope(work.run, path)
            if scope and delta ~= 0 then
                scope.live = scope.live + delta
                scope.changed = true
            end
        end
    end
    work.counts = {}
end

local function note_due(work, due)
    if due and (not work.next_due or due < work.next_due) then work.next_due = due end
end

-- Remembers where the token stands now, so that writing can take it out there.
local function change(run, token)
    if token.changed then return end
    token.changed = true
    if token.state == 'ready' then token.was_ready = ready_member(run, token) end
    if token.state == 'parked' and token.due then token.was_due = true end
end

local function make_ready(work, token)
    token.ready_at = work.now
    token.turn = next_turn()
    if work.run.state == 'PAUSED' then
        token.state = 'held' -- announced on resume
    else
        token.state = 'ready'
        work.ready[#work.ready + 1] = { token.id, token.queue, token.priority }
    end
end

-- A token as it comes into being.
local function add_token(work, new, state)
    local token = { id = new.id, scope = new.scope, kind = new.kind, node = new.node, data = new.data, state = state,
                    queue = new.queue, priority = new.priority, limit_key = new.limit_key, live = new.live,
                    attempt = 1, losses = 0, reason = '', due = new.due, fence = 0, ready_at = work.now,
                    changed = true }
    work.run.tokens[new.id] = token
    return token
end

-- A new token, unless its id exists (L3): parked until its due time, held in a paused execution, leased where the
-- worker asked to keep it, else ready.
local function spawn(work, new)
    local run = work.run
    if load_token(run, new.id) then return end
    local token = add_token(work, new, 'parked')
    if new.live then count(work, new.scope, 1) end
    if new.due then
        note_due(work, new.due)
    elseif work.keep[new.id] and run.state == 'RUNNING' then
        token.state, token.owner, token.fence = 'leased', work.worker, 1
        work.kept[#work.kept + 1] = new.id
    else
        make_ready(work, token)
    end
end

local function finish_token(run, token, digest)
    change(run, token)
    token.state = 'done'
    token.digest = digest
end
