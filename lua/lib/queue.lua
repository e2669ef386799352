-- Return tasks to pending and end them. Needs lib/clock.lua, lib/index.lua and lib/record.lua.
--- @include clock
--- @include index
--- @include options
--- @include record
--- @include wake

-- home_of: return where a task waits when it waits, its kind and order, and whether others published its successor.
local function home_of(key)
  local name, needs, strategy, order, others =
    unpack(redis.call('HMGET', key, 'name', 'needs', 'strategy', 'order', 'next_publication'))
  return {kind = kind_text(name, needs, strategy), order = order_text(order), keep = (others or '') ~= ''}
end

-- to_wait: make a record one of a task that waits. A successor that its attempt submitted is lost with the run: otherwise a
-- later run's success would start it. One that others published stays.
local function to_wait(key, home, ready)
  redis.call('HSET', key, 'state', 'pending', 'order', home.order, 'ready_ms', ready)
  redis.call('HDEL', key, 'partition', 'node', 'slot', 'inc', 'scheduler', unpack(home.keep and {} or NEXT))
end

-- to_pending: let the task wait again, at its old place in the order of its kind.
local function to_pending(key, id, home)
  to_wait(key, home, now_ms())
  enter(home.kind, id, home.order)
end

-- to_later: let the task wait again, but not before `due` (ms).
local function to_later(key, id, home, later, due)
  to_wait(key, home, due)
  redis.call('ZADD', later, due, id)
end

-- to_final: end the task; its record expires after the retention. `clean`: it has no successor and no cancel.
local function to_final(key, state, now, why, retention_s, clean)
  if why ~= '' then
    redis.call('HSET', key, 'state', state, 'finished_ms', now, 'why', why)
  else
    redis.call('HSET', key, 'state', state, 'finished_ms', now)
  end
  if not clean then redis.call('HDEL', key, 'cancel', unpack(NEXT)) end
  redis.call('EXPIRE', key, retention_s)
end

local TOLD = {} -- what goes to the outbox

-- to_outbox: queue the result of a task that ended where no worker saw it, for an agent to tell the result backend.
local function to_outbox(id, state, why) TOLD[#TOLD + 1] = id .. ' ' .. state .. ' ' .. why end

-- write_outbox: write what this call told. Bounded: the newest 10,000.
local function write_outbox(outbox)
  if #TOLD == 0 then return end
  write_all('LPUSH', outbox, TOLD)
  redis.call('LTRIM', outbox, 0, 9999)
end

-- is_past: return whether an expiry (ms, or nil for none) has come.
local function is_past(due, now)
  local at = due and tonumber(due)
  return at and at <= tonumber(now)
end

-- to_expired: end a task that waited past its expiry and is in no index any more.
local function to_expired(key, id, now, retention_s)
  to_final(key, 'cancelled', now, 'expired', retention_s)
  to_outbox(id, 'cancelled', 'expired')
end

local FINAL = {succeeded = true, failed = true, cancelled = true, dead = true}
local HELD = {taken = true, placed = true, running = true} -- states of tasks that are in no kind's queue

-- may_wait: return whether a task in this state can be in the queue of its kind; a damaged state is no reason why not.
local function may_wait(state) return state and not FINAL[state] and not HELD[state] end
