-- requeue: return a task whose attempt lost its lease to pending, if it still is that attempt at that place.
-- KEYS: meta pending later taken placed outbox dead task: task*
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
local bad = bad_retention(args.retention_s) or bad_number('max_starts', args.max_starts, 1, 1e6)
for _, row in rows() do bad = bad or row.delay_ms ~= '' and bad_number('delay_ms', row.delay_ms, 0, 9e14) or nil end
if bad then return bad end
local max_starts = tonumber(args.max_starts)
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'cancel', 'starts',
  'taken_ms', 'placed_ms', 'started_ms', 'max_starts') end
local tasks, damage = read_tasks(read)
if damage then return damage end
local now, idle, back, replies = now_ms(), redis.call('ZCARD', pending) == 0, false, {}

local function bury(key, buried)
  redis.call('PERSIST', key)
  redis.call('ZADD', dead, now, buried)
  for _, id in ipairs(redis.call('ZRANGE', dead, 0, -10001)) do
    redis.call('ZREM', dead, id)
    redis.call('EXPIRE', prefix .. id, args.retention_s)
  end
end

for i, row, key in rows() do
  local id, attempt, node, slot, inc, why, how = row.id, row.attempt, row.node, row.slot, row.inc, row.why, row.how
  local task = tasks[i] or read(key)
  local state, here = task[1], task[3] == node and task[4] == slot and task[5] == inc
  local held = task[2] == attempt and (state == 'taken' or ((state == 'placed' or state == 'running') and here))
  if not held or (how == 'unstarted' and state ~= 'placed') then
    replies[i] = 'none'
  else
    redis.call('HDEL', taken, id)
    redis.call('HDEL', placed, id)
    local since = ({taken = task[8], placed = task[9], running = task[10]})[state] or now
    if row.delay_ms == '' then
      local place = string.format('%s/%s inc=%s since=%s until=%s', node, slot, inc, since, now)
      add_history(key, string.format('%s %s %s %s', attempt, state, place, why))
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
      to_pending(key, id, pending, later, after_ms(now, row.delay_ms))
      back = back or row.delay_ms == ''
    else
      to_final(key, replies[i], now, why, args.retention_s)
      if replies[i] == 'dead' then bury(key, id) end
      to_outbox(outbox, id, replies[i], why)
    end
  end
end
if idle and back then wake(args.channel, meta) end
return replies
