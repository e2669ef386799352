-- The history of a task, a line for each of its last ten attempts that were lost; and the list of
-- the dead.
--- @include task/transitions

-- is_loss: return whether a task that goes back has lost something; a worker also hands back tasks
-- that it has not begun.
local function is_loss(state, how)
  return state == 'running' or how ~= 'recalled' and how ~= 'unbegun'
end

-- add_history: add a line to the task's history.
local function add_history(task, line)
  local lines = {}
  for earlier in string.gmatch(task.extra.history or '', '[^\n]+') do
    lines[#lines + 1] = earlier
  end
  if #lines > 9 then
    table.remove(lines, 1)
  end
  lines[#lines + 1] = string.gsub(string.sub(line, 1, 300), '%s', ' ')
  task.extra.history = table.concat(lines, '\n')
  put_extra(task, 'history', task.extra.history)
end

-- add_setback: add to the history that an attempt was lost at the place of this lease.
local function add_setback(task, attempt, lease, why, now)
  local pattern = ' p%d+ ([^ /]+)/(%d+)%f[%D][%d,]* inc=(%d+)'
  local node, slot, inc = string.match(lease, pattern)
  local placed_ms = task.state == 'placed' and string.match(task.place, ' since=(%d+)$')
  local since = task.started or placed_ms or task.line.ready
  local place = string.format('%s/%s inc=%s since=%s until=%s', node or '', slot or '', inc or '',
    since, now)
  add_history(task, string.format('%s %s %s %s', attempt, task.state, place, why))
end

-- end_buried: end for good the tasks that leave the list of the dead, which is full.
local function end_buried(ids, now, retention_s)
  for _, id in ipairs(ids) do
    local key = KEY.extra .. id
    if bad_type(key, 'hash') then
      redis.call('DEL', key) -- a damaged key goes: the script has written, and may raise no error
    end
  end
  for id, task in pairs(load_tasks(ids)) do
    if task.state == 'dead' then
      task.run = task.extra.run
      write_end(task, 'dead', task.extra.ended_ms or now, task.extra.why or '')
      redis.call('HDEL', KEY.extra .. id, 'run', 'ended_ms')
      redis.call('EXPIRE', KEY.extra .. id, retention_s)
    end
  end
  write_all('ZREM', KEY.dead, ids)
end

-- bury: list a task as dead. The list has the newest 10,000 dead tasks; the others have ended for
-- good.
local function bury(task, now, why, retention_s)
  put_extra(task, 'ended_ms', now, 'run', task.run or '', 'why', why)
  redis.call('HDEL', KEY.extra .. task.id, 'cancel', 'next', 'next_message')
  leave_state(task)
  put_line(task)
  redis.call('ZADD', KEY.dead, now, task.id)
  end_buried(redis.call('ZRANGE', KEY.dead, 0, -10001), now, retention_s)
  task.state = 'dead'
  task.attempt = nil
  task.run = nil
end
