-- purge: delete the records of tasks that have ended, before they expire.
-- KEYS: dead expires task*
-- ARGV: count state id*
--   state: the final state in which the caller saw each task
-- RETURNS: a word per task: purged, or its present state; gone if it has no record
-- ERRORS: PSARGS
-- INVARIANT: a task in another state stays: it was revived meanwhile, or its id has begun a new life.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include batch
--- @include clock
--- @include queue
local wanted = args.state
if not FINAL[wanted] then return redis.error_reply('PSARGS purge deletes what has ended, not what is ' .. wanted) end
local function read(key) return redis.pcall('HMGET', key, 'state') end
local tasks, damage = read_tasks(read)
if damage then return damage end
local replies = {}
for i, row, key in rows() do
  local state = (tasks[i] or read(key))[1]
  if state == wanted then
    redis.call('DEL', key)
    redis.call('ZREM', dead, row.id)
    redis.call('ZREM', expires, row.id)
    replies[i] = 'purged'
  else
    replies[i] = state or 'gone'
  end
end
return replies
