-- requeue: the lease of an attempt is lost; its task goes back to pending if it is still that attempt at that place.
-- KEYS: meta pending later taken placed outbox dead task: task*
-- ARGV: count channel retention_s max_starts (id attempt node slot inc why how delay_ms)*
--   max_starts holds for tasks whose record says nothing of it; delay_ms: '' or how long the task must not be taken again
--   how: '' for a lease that is lost; 'unstarted' puts back only what is placed and has not started; 'recalled' does not
--   count the start: ended by order, or not begun. KEYS[8] is the prefix of records: which left `dead`, only that knows.
-- RETURNS: a word a task: pending, dead (started as often as it may), cancelled (as was asked for), none
-- ERRORS: PSARGS
-- INVARIANT: the task goes back before its slot is freed, and is fenced by that: pending cannot start or finish. The record
--   of a dead task stays as long as `dead` lists it: the newest 10,000. `history` has the last 10 attempts that were lost.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include arguments
--- @include batch
--- @include clock
--- @include history
--- @include queue
local meta, pending, later, taken, placed, outbox, dead, prefix = unpack(KEYS, 1, 8)
local count, channel, retention_s, max_starts = tonumber(ARGV[1]) or 0, ARGV[2], ARGV[3], tonumber(ARGV[4])
local bad = bad_count('requeue', 8 + count, 4 + 8 * count, 8) or bad_retention(ARGV[3])
  or bad_number('max_starts', ARGV[4], 1, 1e6)
for at = 12, bad and 0 or #ARGV, 8 do bad = bad or ARGV[at] ~= '' and bad_number('delay_ms', ARGV[at], 0, 9e14) or nil end
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'cancel', 'starts',
  'taken_ms', 'placed_ms', 'started_ms', 'max_starts') end
local tasks, damage = read_tasks(8, read)
if damage then return damage end
local now, idle, back, replies = now_ms(), redis.call('ZCARD', pending) == 0, false, {}

local function bury(key, buried)
  redis.call('PERSIST', key)
  redis.call('ZADD', dead, now, buried)
  for _, id in ipairs(redis.call('ZRANGE', dead, 0, -10001)) do
    redis.call('ZREM', dead, id)
    redis.call('EXPIRE', prefix .. id, retention_s)
  end
end

for i = 1, count do
  local id, attempt, node, slot, inc, why, how, delay_ms = unpack(ARGV, 8 * i - 3, 8 * i + 4)
  local key = KEYS[8 + i]
  local task = tasks[i] or read(key)
  local state, here = task[1], task[3] == node and task[4] == slot and task[5] == inc
  local held = task[2] == attempt and (state == 'taken' or ((state == 'placed' or state == 'running') and here))
  if not held or (how == 'unstarted' and state ~= 'placed') then
    replies[i] = 'none'
  else
    redis.call('HDEL', taken, id)
    redis.call('HDEL', placed, id)
    local since = ({taken = task[8], placed = task[9], running = task[10]})[state] or now
    if delay_ms == '' then
      local place = string.format('%s/%s inc=%s since=%s until=%s', node, slot, inc, since, now)
      tell(key, string.format('%s %s %s %s', attempt, state, place, why))
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
      to_pending(key, id, pending, later, after_ms(now, delay_ms))
      back = back or delay_ms == ''
    else
      to_final(key, replies[i], now, why, retention_s)
      if replies[i] == 'dead' then bury(key, id) end
      to_outbox(outbox, id, replies[i], why)
    end
  end
end
if idle and back then wake(channel, meta) end
return replies
