-- purge: the records of tasks that have ended are deleted before their time.
-- KEYS: dead expires task*
-- ARGV: count state id*
--   state is the final state that the caller saw each in
-- RETURNS: a word a task: purged, or the state that it is in, gone if nothing is known of it
-- ERRORS: PSARGS
-- INVARIANT: a task that is not in that state stays: it was revived meanwhile, or its id has begun a new life.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include arguments
--- @include batch
--- @include clock
--- @include queue
local dead, expires = KEYS[1], KEYS[2]
local count, wanted = tonumber(ARGV[1]) or 0, ARGV[2]
local bad = bad_count('purge', 2 + count, 2 + count, 2)
if bad then return bad end
if not FINAL[wanted] then return redis.error_reply('PSARGS purge deletes what has ended, not what is ' .. tostring(wanted)) end
local function read(key) return redis.pcall('HMGET', key, 'state') end
local tasks, damage = read_tasks(2, read)
if damage then return damage end
local replies = {}
for i = 1, count do
  local id, key = ARGV[2 + i], KEYS[2 + i]
  local state = (tasks[i] or read(key))[1]
  if state == wanted then
    redis.call('DEL', key)
    redis.call('ZREM', dead, id)
    redis.call('ZREM', expires, id)
    replies[i] = 'purged'
  else
    replies[i] = state or 'gone'
  end
end
return replies
