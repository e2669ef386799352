-- The history of a task, a line for each of its last ten attempts that were lost; and the list of the dead.
--- @include task/transitions

-- is_loss: return whether a task that goes back has lost something; a worker also hands back what it has not begun.
local function is_loss(state, how) return state == 'running' or how ~= 'recalled' and how ~= 'unbegun' end

-- add_history: add a line to the task's history.
local function add_history(task, line)
  local lines = {}
  for old in string.gmatch(task.extra.history or '', '[^\n]+') do lines[#lines + 1] = old end
  if #lines > 9 then table.remove(lines, 1) end
  lines[#lines + 1] = string.gsub(string.sub(line, 1, 300), '%s', ' ')
  task.extra.history = table.concat(lines, '\n')
  put_extra(task, 'history', task.extra.history)
end

-- add_setback: add to the history that this attempt was lost, at the place that its lease tells.
local function add_setback(task, attempt, lease, why, now)
  local node, slot, inc = string.match(lease, ' p%d+ ([^ /]+)/(%d+)%f[%D][%d,]* inc=(%d+)')
  local since = task.started or task.state == 'placed' and string.match(task.place, ' since=(%d+)$') or task.line.ready
  local place = string.format('%s/%s inc=%s since=%s until=%s', node or '', slot or '', inc or '', since, now)
  add_history(task, string.format('%s %s %s %s', attempt, task.state, place, why))
end

-- bury: list a dead task, which stays while it is listed: the newest 10,000. The others have ended for good.
local function bury(task, now, why, retention_s)
  put_extra(task, 'ended_ms', now, 'run', task.run or '', 'why', why)
  redis.call('HDEL', KEY.extra .. task.id, 'cancel', 'next', 'next_message')
  unhold(task)
  put_line(task)
  redis.call('ZADD', KEY.dead, now, task.id)
  local gone = redis.call('ZRANGE', KEY.dead, 0, -10001)
  for _, id in ipairs(gone) do
    if bad_type(KEY.extra .. id, 'hash') then redis.call('DEL', KEY.extra .. id) end -- it is too late for an error
  end
  for id, old in pairs(load_tasks(gone)) do
    if old.state == 'dead' then
      old.run = old.extra.run
      write_end(old, 'dead', old.extra.ended_ms or now, old.extra.why or '')
      redis.call('HDEL', KEY.extra .. id, 'run', 'ended_ms')
      redis.call('EXPIRE', KEY.extra .. id, retention_s)
    end
  end
  write_all('ZREM', KEY.dead, gone)
  task.state, task.attempt, task.run = 'dead', nil, nil
end
