-- Check and write a submission: a row of submit. Needs lib/arguments.lua. Limits: parsync_redis/model/limits.py.
--- @include clock
--- @include fits
--- @include options

-- bad_submission: return the error reply for a task that is not well formed, or nil; nothing is written before all are.
local function bad_submission(task)
  local id, name = task.id, task.name
  if #id > 3060 or not string.find(id, '^[%w%%][%w%%_.:@+-]*$') or #name > 255 or not string.find(name, '^[!-~]+$') then
    return redis.error_reply('PSARGS an id is letters, digits, _.:@+- or %XX, a name is printable and has no spaces')
  end
  if #task.message > 2097152 then return redis.error_reply('PSARGS a message has 2,097,152 bytes at most') end
  return bad_option(task)
    or task.delay_ms ~= '' and bad_number('delay_ms', task.delay_ms, 0, 9e14)
    or not string.find(task.publication, '^%w*$') and redis.error_reply('PSARGS a publication is letters and digits')
    or task.expiry_ms ~= '' and bad_number('expiry_ms', task.expiry_ms, -9e14, 9e14)
    or nil
end

-- is_revoked: return whether the task was cancelled and a run publishes its id (a chain's next step), which does not count.
local function is_revoked(state, publication)
  return state == 'cancelled' and string.sub(publication, 1, 1) == 's'
end

-- write_next: store the successor of a running task, for when its run has ended. A successor that the run itself submitted
-- (`after`) is lost with the run; one that others published is not.
local function write_next(key, task)
  if task.after ~= '' then task.publication = '' end
  local fields = {}
  for _, field in ipairs(NEXT) do
    fields[#fields + 1], fields[#fields + 2] = field, task[string.sub(field, 6)] or ''
  end
  redis.call('HDEL', key, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
  redis.call('HSET', key, unpack(fields))
end

-- write_task: write the record of a new task, number `life` of all.
local function write_task(key, task, life, now)
  local fields = {'state', 'pending', 'name', task.name, 'needs', task.needs, 'order', task.order, 'attempt', '0@' .. life,
    'starts', '0', 'submitted_ms', now, 'ready_ms', task.due_ms or now, 'message', task.message}
  add_options(fields, task)
  if task.publication ~= '' then fields[#fields + 1], fields[#fields + 2] = 'publication', task.publication end
  if task.expires_ms then fields[#fields + 1], fields[#fields + 2] = 'expires_ms', task.expires_ms end
  redis.call('HSET', key, unpack(fields))
end
