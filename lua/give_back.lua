-- give_back: return taken tasks to their kinds, because their scheduler gives them back or was lost.
-- KEYS: meta kinds changed taken pending: task*
-- ARGV: count scheduler (id attempt why)*
--   attempt: '' for any attempt of that scheduler (it was lost)
-- RETURNS: a word per task: pending, stale
-- ERRORS: PSARGS
-- INVARIANT: only a task that is taken, by this scheduler and attempt, goes back; a pending task cannot start, which fences it.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include batch
--- @include clock
--- @include queue
local scheduler = args.scheduler
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'scheduler') end
local tasks, damage = read_tasks(read)
if damage then return damage end
local homes, back, replies = {}, {}, {}
for i, row, key in rows() do
  local state, current, owner = unpack(tasks[i] or read(key))
  if state == 'taken' and owner == scheduler and (row.attempt == '' or row.attempt == current) then
    homes[i] = home_of(key)
    local bad = bad_kind(pending_prefix, homes[i].kind)
    if bad then return bad end
  end
end
for i, row, key in rows() do
  local id, why = row.id, row.why
  if homes[i] and not back[id] then
    back[id] = true
    redis.call('HDEL', taken, id)
    if why ~= '' then redis.call('HSET', key, 'why', why) end
    to_pending(key, id, homes[i])
    replies[i] = 'pending'
  else
    replies[i] = 'stale'
  end
end
write_kinds(meta, kinds, changed) -- nobody is woken: who gives back has seen that there is no seat
return replies
