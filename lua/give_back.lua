-- give_back: return taken tasks to pending, because their scheduler gives them back or was lost.
-- KEYS: pending later taken task*
-- ARGV: count scheduler delay_ms (id attempt why)*
--   attempt: '' for any attempt of that scheduler (it was lost); delay_ms: '' puts the task back at its old place at once
-- RETURNS: a word per task: pending, stale
-- ERRORS: PSARGS
-- INVARIANT: only a task that is taken, by this scheduler and attempt, goes back; a pending task cannot start, which fences it.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include batch
--- @include clock
--- @include queue
local scheduler, delay_ms = args.scheduler, args.delay_ms
local bad = delay_ms ~= '' and bad_number('delay_ms', delay_ms, 0, 1e12)
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'scheduler') end
local tasks, damage = read_tasks(read)
if damage then return damage end
local due = after_ms(now_ms(), delay_ms)
local replies = {}
for i, row, key in rows() do
  local id, attempt, why = row.id, row.attempt, row.why
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
