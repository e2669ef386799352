-- Schedulers that wait to be woken when tasks begin to wait of a kind of which none waited: `waiters` of the queue's meta. Only
-- takes write it, because clients, who wake, may not write texts there. And schedulers that wait for a slot of a partition:
-- `waiters` of the partition's meta.

-- sound_waiters: return these `waiters`; none for a text that is longer than any that scripts write.
local function sound_waiters(waiters) return #waiters < 8000 and waiters or '' end

-- wait_in: add the scheduler to the end of these `waiters`; again, if wakes would pass over 16 others first, which may be dead.
-- Dead names gather at the front; they are cut off at 4,000 bytes.
local function wait_in(meta, waiters, scheduler)
  waiters = sound_waiters(waiters)
  local all = ' ' .. waiters .. ' '
  local from, to = string.find(all, ' ' .. scheduler .. ' ', 1, true)
  if from then
    local _, behind = string.gsub(string.sub(all, to + 1), ' ', '')
    if behind < 16 then return end
    waiters = string.sub(string.sub(all, 1, from) .. string.sub(all, to + 1), 2, -2)
  end
  all = waiters == '' and scheduler or waiters .. ' ' .. scheduler
  if #all > 4000 then all = string.match(string.sub(all, -4000), ' (.*)$') or scheduler end
  redis.call('HSET', meta, 'waiters', all)
end

local function put_waiters(meta, waiters)
  if waiters == '' then redis.call('HDEL', meta, 'waiters') else redis.call('HSET', meta, 'waiters', waiters) end
end

-- wait_no_more: take the scheduler out of these `waiters`.
local function wait_no_more(meta, waiters, scheduler)
  local all = ' ' .. sound_waiters(waiters) .. ' '
  local from, to = string.find(all, ' ' .. scheduler .. ' ', 1, true)
  if from then put_waiters(meta, string.sub(string.sub(all, 1, from) .. string.sub(all, to + 1), 2, -2)) end
end

-- ring_newest: wake the newest waiter but `me`; if nobody listens on its channel, the one before it, and so on, 16 at most.
-- Return those that were not tried.
local function ring_newest(channel, waiters, me)
  local rest, heard, tries = sound_waiters(waiters), 0, 0
  while heard == 0 and rest ~= '' and tries < 16 do
    local others, last = string.match(rest, '^(.*) (%S+)$')
    if (last or rest) ~= me then heard = redis.call('SPUBLISH', channel .. ':' .. (last or rest), 'wake') end
    rest, tries = others or '', tries + 1
  end
  return rest
end

-- wake: wake the newest waiter. It stays among the waiters until it takes.
local function wake(channel, meta) ring_newest(channel, redis.call('HMGET', meta, 'waiters')[1] or '') end

-- go_on: note that a scheduler does not wait after its take. waits: see take. Schedulers that are woken here, or do not hear it,
-- leave the list.
local function go_on(channel, meta, waiters, me, waits)
  if waits == 'wake' then
    put_waiters(meta, ring_newest(channel, waiters, me))
  else
    wait_no_more(meta, waiters, me)
  end
end

-- ring_oldest: tell the scheduler that has waited longest for a slot of this partition that slots are free. It waits no longer.
-- channel, partition: as the script has them; free, slots: those of the partition now.
local function ring_oldest(channel, partition, meta, waiters, free, slots)
  local waiter, others = string.match(waiters, '^(%S+) ?(.*)$')
  if not waiter then return end
  put_waiters(meta, others)
  local message = string.format('freed %s %d %s', partition, free, slots or 0)
  redis.call('SPUBLISH', channel .. ':' .. waiter, message)
end
