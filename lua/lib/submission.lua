-- A submission: what it must be, and how it is written. Needs lib/arguments.lua and lib/clock.lua. Limits:
-- parsync_redis/model/limits.py.
--- @include clock
--- @include fits

-- bad_submission: the error reply for a task that is not well formed, or nil; nothing is written before all are.
local function bad_submission(id, name, needs, _, priority, delay_ms, expiry_ms, _, _, max_starts, publication, message)
  if #id > 3060 or not string.find(id, '^[%w%%][%w%%_.:@+-]*$') or #name > 255 or not string.find(name, '^[!-~]+$') then
    return redis.error_reply('PSARGS an id is letters, digits, _.:@+- or %XX, a name is printable and has no spaces')
  end
  if #message > 2097152 then return redis.error_reply('PSARGS a message has 2,097,152 bytes at most') end
  if not string.find(needs, '^slots=%d') or not well_formed(needs) then
    return redis.error_reply('PSARGS needs are words NAME=N and NAME:VALUE, slots=N first')
  end
  return bad_number('priority', priority, 0, 9)
    or delay_ms ~= '' and bad_number('delay_ms', delay_ms, 0, 9e14)
    or max_starts ~= '' and bad_number('max_starts', max_starts, 1, 1000)
    or not string.find(publication, '^%w*$') and redis.error_reply('PSARGS a publication is letters and digits')
    or expiry_ms ~= '' and bad_number('expiry_ms', expiry_ms, -9e14, 9e14)
    or nil
end

-- read_submission: the arguments of one task, which begin behind ARGV[at]; due and expiry are times, nil for none.
local function read_submission(at, now)
  local id, name, needs, strategy, priority, delay_ms, expiry_ms, wait, after, max_starts, publication, message =
    unpack(ARGV, at + 1, at + 12)
  return {id = id, name = name, needs = needs, strategy = strategy, priority = priority, due = after_ms(now, delay_ms),
    expiry = after_ms(now, expiry_ms), wait = wait, after = after, max_starts = max_starts, publication = publication,
    message = message}
end

-- is_revoked: whether a task was cancelled, and what a run publishes under its id (a chain's next step) does not count.
local function is_revoked(state, publication)
  return state == 'cancelled' and string.sub(publication, 1, 1) == 's'
end

-- write_next: stores the next message of a running task, for when its run has ended.
-- A successor that the run submitted (`after`) is lost with the run;
-- one that others published is not.
local function write_next(key, task)
  redis.call('HDEL', key, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
  redis.call('HSET', key, 'next_message', task.message, 'next_name', task.name, 'next_needs', task.needs,
    'next_strategy', task.strategy, 'next_due_ms', task.due or '', 'next_expires_ms', task.expiry or '',
    'next_priority', task.priority, 'next_max_starts', task.max_starts,
    'next_publication', task.after == '' and task.publication or '')
end

-- write_task: the record of a task that begins its life, number `life` of all.
local function write_task(key, task, life, now)
  local fields = {'state', 'pending', 'name', task.name, 'needs', task.needs, 'strategy', task.strategy,
    'priority', task.priority, 'order', task.order, 'attempt', '0@' .. life, 'starts', '0', 'submitted_ms', now,
    'ready_ms', task.due or now, 'message', task.message}
  local more = {expires_ms = task.expiry, publication = task.publication, max_starts = task.max_starts}
  for field, value in pairs(more) do
    if value ~= '' then fields[#fields + 1], fields[#fields + 2] = field, value end
  end
  redis.call('HSET', key, unpack(fields))
end
