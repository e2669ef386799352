-- requeue: return a task whose attempt lost its lease to pending, if it still is that attempt at that place.
-- KEYS: meta kinds changed later taken placed outbox dead pending: task: task*
-- ARGV: count channel retention_s max_starts (id attempt node slot inc why how delay_ms)*
--   max_starts: for tasks whose record has none; delay_ms: '' or for how long the task must not be taken again
--   how: '' if the lease is lost; 'unstarted' returns only what is placed and has not started; 'recalled' does not count the
--   start: the run was ended on purpose, or did not begin; task: is the prefix of records, for those that leave `dead`
-- RETURNS: a word per task: pending, dead (it has used up its starts), cancelled (as was asked for), none
-- ERRORS: PSARGS
-- INVARIANT: the task goes back before its slot is freed, which fences it: a pending task cannot start or finish. The record of
--   a dead task stays while `dead` lists it: the newest 10,000. `history` has the last 10 attempts that were lost.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include batch
--- @include clock
--- @include history
--- @include queue
local bad, max_starts = bad_number('max_starts', args.max_starts, 1, 1e6), tonumber(args.max_starts)
for _, row in rows() do bad = bad or row.delay_ms ~= '' and bad_number('delay_ms', row.delay_ms, 0, 9e14) or nil end
bad = bad or bad_retention(args.retention_s)
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'cancel', 'starts',
  'taken_ms', 'placed_ms', 'started_ms', 'max_starts') end
local tasks, damage = read_tasks(read)
if damage then return damage end
local now, homes, replies = now_ms(), {}, {}

-- is_held: return whether a task has this attempt, at this place if it has one; at once, as a row before may have ended it.
local function is_held(task, row)
  local here = task[3] == row.node and task[4] == row.slot and task[5] == row.inc
  local held = task[2] == row.attempt and (task[1] == 'taken' or ((task[1] == 'placed' or task[1] == 'running') and here))
  return held and (row.how ~= 'unstarted' or task[1] == 'placed')
end

for i, row, key in rows() do
  local task = tasks[i] or read(key)
  if is_held(task, row) then
    homes[i] = home_of(key)
    bad = bad or bad_kind(pending_prefix, homes[i].kind)
  end
end
if bad then return bad end
for i, row, key in rows() do
  local id, why, how, task = row.id, row.why, row.how, tasks[i] or read(key)
  local state = task[1]
  if not is_held(task, row) then
    replies[i] = 'none'
  else
    redis.call('HDEL', taken, id)
    redis.call('HDEL', placed, id)
    local since = ({taken = task[8], placed = task[9], running = task[10]})[state] or now
    if row.delay_ms == '' then
      local place = string.format('%s/%s inc=%s since=%s until=%s', row.node, row.slot, row.inc, since, now)
      add_history(key, string.format('%s %s %s %s', row.attempt, state, place, why))
    end
    if task[6] then
      replies[i] = 'cancelled'
    elseif state == 'running' and how ~= 'recalled' and (tonumber(task[7]) or 0) >= (tonumber(task[11]) or max_starts) then
      replies[i] = 'dead'
    else
      replies[i] = 'pending'
    end
    if replies[i] == 'pending' then
      if state == 'running' and how == 'recalled' then redis.call('HSET', key, 'starts', (tonumber(task[7]) or 1) - 1) end
      if why ~= '' then redis.call('HSET', key, 'why', why) end
      local due = after_ms(now, row.delay_ms)
      if due then to_later(key, id, homes[i], later, due) else to_pending(key, id, homes[i]) end
    else
      to_final(key, replies[i], now, why, args.retention_s)
      if replies[i] == 'dead' then bury(dead, task_prefix, key, id, now, args.retention_s) end
      to_outbox(id, replies[i], why)
    end
  end
end
write_outbox(outbox)
if write_kinds(meta, kinds, changed) then wake(args.channel, meta) end
return replies
