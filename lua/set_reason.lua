-- set_reason: write why a taken task has found no place yet, for people to read.
-- KEYS: task*
-- ARGV: count (attempt why)*
-- RETURNS: how many tasks it was written to
-- ERRORS: PSARGS
-- INVARIANT: only a task that is still taken, by that attempt, changes.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include batch
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt') end
local tasks, damage = read_tasks(read)
if damage then return damage end
local written = 0
for i, row, key in rows() do
  local state, attempt = unpack(tasks[i] or read(key))
  if state == 'taken' and attempt == row.attempt then
    redis.call('HDEL', key, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
    redis.call('HSET', key, 'why', row.why)
    written = written + 1
  end
end
return written
