-- Return tasks to pending and end them; wake schedulers. Needs lib/clock.lua and lib/record.lua.
--- @include clock
--- @include options
--- @include record

-- to_pending: let the task wait again, at its old place in the order, or until `due` (ms) if that is given. A successor that
-- its attempt submitted is lost with the run: otherwise a later run's success would start it. One that others published stays.
local function to_pending(key, id, pending, later, due)
  local keep = (redis.call('HGET', key, 'next_publication') or '') ~= ''
  local order = order_of(key)
  redis.call('HSET', key, 'state', 'pending', 'order', order, 'ready_ms', due or now_ms())
  redis.call('HDEL', key, 'partition', 'node', 'slot', 'inc', 'scheduler', unpack(keep and {} or NEXT))
  if due then
    redis.call('ZADD', later, due, id)
  else
    redis.call('ZADD', pending, order, id)
  end
end

-- to_final: end the task; its record expires after the retention. `clean`: it has no successor and no cancel.
local function to_final(key, state, now, why, retention_s, clean)
  redis.call('HSET', key, 'state', state, 'finished_ms', now)
  if why ~= '' then redis.call('HSET', key, 'why', why) end
  if not clean then redis.call('HDEL', key, 'cancel', unpack(NEXT)) end
  redis.call('EXPIRE', key, retention_s)
end

-- to_outbox: queue the result of a task that ended where no worker saw it, for an agent to tell the result backend.
-- Bounded: the newest 10,000.
local function to_outbox(outbox, id, state, why)
  redis.call('LPUSH', outbox, id .. ' ' .. state .. ' ' .. why)
  redis.call('LTRIM', outbox, 0, 9999)
end

-- is_past: return whether an expiry (ms, or nil for none) has come.
local function is_past(due, now)
  local at = due and tonumber(due)
  return at and at <= tonumber(now)
end

-- to_expired: end a task that waited past its expiry and is in no index any more.
local function to_expired(key, id, outbox, now, retention_s)
  to_final(key, 'cancelled', now, 'expired', retention_s)
  to_outbox(outbox, id, 'cancelled', 'expired')
end

-- wait_in: add the scheduler to the end of `waiters`. Dead names gather at the front; they are cut off at 4,000 bytes.
local function wait_in(meta, scheduler)
  local waiters = redis.call('HMGET', meta, 'waiters')[1] or ''
  if string.find(' ' .. waiters .. ' ', ' ' .. scheduler .. ' ', 1, true) then return end
  local all = waiters == '' and scheduler or waiters .. ' ' .. scheduler
  if #all > 4000 then all = string.match(string.sub(all, -4000), ' (.*)$') or scheduler end
  redis.call('HSET', meta, 'waiters', all)
end

-- wake: wake the newest waiter but `me`; if nobody listens on its channel, the one before it, and so on, 16 at most.
local function wake(channel, meta, me)
  local waiters = redis.call('HMGET', meta, 'waiters')[1] or ''
  local rest, heard, tries = #waiters < 8000 and waiters or '', 0, 0
  while heard == 0 and rest ~= '' and tries < 16 do
    local others, last = string.match(rest, '^(.*) (%S+)$')
    if (last or rest) ~= me then heard = redis.call('PUBLISH', channel .. ':' .. (last or rest), 'wake') end
    rest, tries = others or '', tries + 1
  end
  if rest ~= '' then
    redis.call('HSET', meta, 'waiters', rest)
  elseif waiters ~= '' then
    redis.call('HDEL', meta, 'waiters')
  end
end

local FINAL = {succeeded = true, failed = true, cancelled = true, dead = true}
