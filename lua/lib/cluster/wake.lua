-- Schedulers without work wait until a task of a new kind comes: one of which no task waited. The
-- field `waiters` of the queue's meta has the names of these schedulers, the newest last. Only take
-- writes the field: a client that submits wakes schedulers, but its login may not write the field.
-- The field `waiters` of a partition's meta has the schedulers that wait for a slot of the
-- partition.

-- sound_waiters: return these waiters; '' for a text that is longer than scripts write.
local function sound_waiters(waiters)
  return #waiters < 8000 and waiters or '' -- add_waiter keeps about 4,000 bytes
end

-- without_waiter: return the waiters without a scheduler, and how many waiters are behind it; nil
-- if the scheduler does not wait.
local function without_waiter(waiters, scheduler)
  local padded = ' ' .. waiters .. ' '
  local from, to = string.find(padded, ' ' .. scheduler .. ' ', 1, true)
  if not from then
    return nil
  end
  local behind = string.sub(padded, to + 1)
  local _, number_behind = string.gsub(behind, ' ', '')
  return string.sub(string.sub(padded, 1, from) .. behind, 2, -2), number_behind
end

-- add_waiter: add a scheduler to the end of the waiters. A scheduler that waits already moves to
-- the end if wakes would pass over 16 waiters first, which may be dead. Dead names gather at the
-- front: the text is cut off there at 4,000 bytes.
local function add_waiter(meta, waiters, scheduler)
  waiters = sound_waiters(waiters)
  local remaining, number_behind = without_waiter(waiters, scheduler)
  if remaining and number_behind < 16 then
    return
  end
  remaining = remaining or waiters
  local text = remaining == '' and scheduler or remaining .. ' ' .. scheduler
  if #text > 4000 then
    text = string.match(string.sub(text, -4000), ' (.*)$') or scheduler
  end
  redis.call('HSET', meta, 'waiters', text)
end

-- write_waiters: write the waiters; an empty field is deleted.
local function write_waiters(meta, waiters)
  if waiters == '' then
    redis.call('HDEL', meta, 'waiters')
  else
    redis.call('HSET', meta, 'waiters', waiters)
  end
end

-- remove_waiter: take a scheduler out of the waiters.
local function remove_waiter(meta, waiters, scheduler)
  local remaining = without_waiter(sound_waiters(waiters), scheduler)
  if remaining then
    write_waiters(meta, remaining)
  end
end

-- wake_newest: wake the newest waiter, but not `scheduler`. If nobody listens on the waiter's
-- channel, wake the waiter before. Try 16 waiters at most. Return the waiters that were not tried.
local function wake_newest(channel, waiters, scheduler)
  local untried = sound_waiters(waiters)
  local listeners = 0
  local tries = 0
  while listeners == 0 and untried ~= '' and tries < 16 do
    local earlier, newest = string.match(untried, '^(.*) (%S+)$')
    newest = newest or untried
    if newest ~= scheduler then
      listeners = redis.call('SPUBLISH', channel .. ':' .. newest, 'wake')
    end
    untried = earlier or ''
    tries = tries + 1
  end
  return untried
end

-- wake: wake the newest waiter. The waiter stays in the list until it takes.
local function wake(channel, meta)
  wake_newest(channel, redis.call('HMGET', meta, 'waiters')[1] or '')
end

-- stop_waiting: remove a scheduler that does not wait after its take from the waiters. If `waits`
-- is 'wake', also wake another scheduler; a scheduler that is woken here, or does not listen,
-- leaves the waiters.
local function stop_waiting(channel, meta, waiters, scheduler, waits)
  if waits == 'wake' then
    write_waiters(meta, wake_newest(channel, waiters, scheduler))
  else
    remove_waiter(meta, waiters, scheduler)
  end
end

-- note_waiting: write whether a scheduler waits after its take; waits: see take.
local function note_waiting(channel, meta, waiters, scheduler, waits)
  if waits == 'wait' then
    add_waiter(meta, waiters or '', scheduler)
    return
  end
  local leaves = waits == 'wake' or waits == '' and string.find(waiters or '', scheduler, 1, true)
  if waiters and leaves then
    in_full().stop_waiting(channel, meta, waiters, scheduler, waits)
  end
end

-- ring_oldest: tell the scheduler that has waited longest for a slot of a partition that slots are
-- free, and take it out of the waiters of the partition's meta. channel, partition: as the script
-- has them; free_count, slot_count: of the partition now. The script has written before, so a login
-- that may not send the message ends no call: the scheduler reads the partition within a gap.
local function ring_oldest(channel, partition, meta, waiters, free_count, slot_count)
  local waiter, later_waiters = string.match(waiters, '^(%S+) ?(.*)$')
  if not waiter then
    return
  end
  write_waiters(meta, later_waiters)
  local message = string.format('freed %s %d %s', partition, free_count, slot_count or 0)
  local reply = redis.pcall('SPUBLISH', channel .. ':' .. waiter, message)
  if type(reply) == 'table' then
    redis.log(redis.LOG_WARNING, 'parsync: ' .. waiter .. ' was not told: ' .. tostring(reply.err))
  end
end
