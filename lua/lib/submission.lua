-- Check and write a submission: a row of submit. Needs lib/arguments.lua and lib/clock.lua. Limits:
-- parsync_redis/model/limits.py.
--- @include clock
--- @include fits

-- bad_submission: return the error reply for a row that is not well formed, or nil; nothing is written before all are.
local function bad_submission(row)
  local id, name, needs, delay_ms, expiry_ms, max_starts =
    row.id, row.name, row.needs, row.delay_ms, row.expiry_ms, row.max_starts
  if #id > 3060 or not string.find(id, '^[%w%%][%w%%_.:@+-]*$') or #name > 255 or not string.find(name, '^[!-~]+$') then
    return redis.error_reply('PSARGS an id is letters, digits, _.:@+- or %XX, a name is printable and has no spaces')
  end
  if #row.message > 2097152 then return redis.error_reply('PSARGS a message has 2,097,152 bytes at most') end
  if not string.find(needs, '^slots=%d') or not well_formed(needs) then
    return redis.error_reply('PSARGS needs are words NAME=N and NAME:VALUE, slots=N first')
  end
  return bad_number('priority', row.priority, 0, 9)
    or delay_ms ~= '' and bad_number('delay_ms', delay_ms, 0, 9e14)
    or max_starts ~= '' and bad_number('max_starts', max_starts, 1, 1000)
    or not string.find(row.publication, '^%w*$') and redis.error_reply('PSARGS a publication is letters and digits')
    or expiry_ms ~= '' and bad_number('expiry_ms', expiry_ms, -9e14, 9e14)
    or nil
end

-- read_submission: return a row as a table; due and expiry are times, nil for none.
local function read_submission(row, now)
  return {id = row.id, name = row.name, needs = row.needs, strategy = row.strategy, priority = row.priority,
    due = after_ms(now, row.delay_ms), expiry = after_ms(now, row.expiry_ms), wait = row.wait, after = row.after,
    max_starts = row.max_starts, publication = row.publication, message = row.message}
end

-- is_revoked: return whether the task was cancelled and a run publishes its id (a chain's next step), which does not count.
local function is_revoked(state, publication)
  return state == 'cancelled' and string.sub(publication, 1, 1) == 's'
end

-- write_next: store the successor of a running task, for when its run has ended. A successor that the run itself submitted
-- (`after`) is lost with the run; one that others published is not.
local function write_next(key, task)
  redis.call('HDEL', key, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
  redis.call('HSET', key, 'next_message', task.message, 'next_name', task.name, 'next_needs', task.needs,
    'next_strategy', task.strategy, 'next_due_ms', task.due or '', 'next_expires_ms', task.expiry or '',
    'next_priority', task.priority, 'next_max_starts', task.max_starts,
    'next_publication', task.after == '' and task.publication or '')
end

-- write_task: write the record of a new task, number `life` of all.
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
