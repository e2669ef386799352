-- The history of a task: a line for each of its last ten attempts that were lost; and the list of the dead.

-- add_history: add a line to the task's history.
local function add_history(key, line)
  local lines = {}
  for old in string.gmatch(redis.call('HGET', key, 'history') or '', '[^\n]+') do lines[#lines + 1] = old end
  if #lines > 9 then table.remove(lines, 1) end
  lines[#lines + 1] = string.gsub(string.sub(line, 1, 300), '%s', ' ')
  redis.call('HSET', key, 'history', table.concat(lines, '\n'))
end

-- bury: list a dead task, whose record stays while it is listed: the newest 10,000.
local function bury(dead, task_prefix, key, buried, now, retention_s)
  redis.call('PERSIST', key)
  redis.call('ZADD', dead, now, buried)
  for _, id in ipairs(redis.call('ZRANGE', dead, 0, -10001)) do
    redis.call('ZREM', dead, id)
    redis.call('EXPIRE', task_prefix .. id, retention_s)
  end
end
