-- note: why a taken task has found no place yet, for people to read.
-- KEYS: task*
-- ARGV: count (attempt why)*
-- RETURNS: how many were noted
-- ERRORS: PSARGS
-- INVARIANT: only a task that is still taken by that attempt is touched.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include arguments
--- @include batch
local count, noted = tonumber(ARGV[1]) or 0, 0
local bad = bad_count('note', count, 1 + 2 * count, 0)
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt') end
local tasks, damage = read_tasks(0, read)
if damage then return damage end
for i = 1, count do
  local state, attempt = unpack(tasks[i] or read(KEYS[i]))
  if state == 'taken' and attempt == ARGV[2 * i] then
    redis.call('HDEL', KEYS[i], '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
    redis.call('HSET', KEYS[i], 'why', ARGV[2 * i + 1])
    noted = noted + 1
  end
end
return noted
