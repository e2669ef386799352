-- The history of a task: a line for each of its last ten attempts that were lost.

-- add_history: add a line to the task's history.
local function add_history(key, line)
  local lines = {}
  for old in string.gmatch(redis.call('HGET', key, 'history') or '', '[^\n]+') do lines[#lines + 1] = old end
  if #lines > 9 then table.remove(lines, 1) end
  lines[#lines + 1] = string.gsub(string.sub(line, 1, 300), '%s', ' ')
  redis.call('HSET', key, 'history', table.concat(lines, '\n'))
end
