-- give_back: taken tasks go back to pending, because their scheduler gives them back or was lost.
-- KEYS: pending later taken task*
-- ARGV: count scheduler delay_ms (id attempt why)*
--   attempt is '' for whatever attempt that scheduler has (it was lost); delay_ms '' puts the task at its old place at once
-- RETURNS: a word a task: pending, stale
-- ERRORS: PSARGS
-- INVARIANT: only a task that is taken, by this scheduler and attempt, goes back; pending cannot start, which fences it.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include arguments
--- @include batch
--- @include clock
--- @include queue
local pending, later, taken = unpack(KEYS, 1, 3)
local count, scheduler, delay_ms = tonumber(ARGV[1]) or 0, ARGV[2], ARGV[3]
local bad = bad_count('give_back', 3 + count, 3 + 3 * count, 3)
  or (ARGV[3] ~= '' and bad_number('delay_ms', ARGV[3], 0, 1e12))
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'scheduler') end
local tasks, damage = read_tasks(3, read)
if damage then return damage end
local due = delay_ms ~= '' and string.format('%.0f', now_ms() + delay_ms) or nil
local replies = {}
for i = 1, count do
  local id, attempt, why = unpack(ARGV, 3 * i + 1, 3 * i + 3)
  local key = KEYS[3 + i]
  local state, current, owner = unpack(tasks[i] or read(key))
  if state == 'taken' and owner == scheduler and (attempt == '' or attempt == current) then
    redis.call('HDEL', taken, id)
    if why ~= '' then redis.call('HSET', key, 'why', why) end
    to_pending(key, id, pending, later, due)
    replies[i] = 'pending'
  else
    if redis.call('HGET', taken, id) == scheduler and not (state == 'taken' and owner == scheduler) then
      redis.call('HDEL', taken, id)
    end
    replies[i] = 'stale'
  end
end
return replies
