-- requeue: the lease of an attempt is lost; its task goes back to pending if it is still that attempt at that place.
-- KEYS: meta pending later taken placed verdicts task*
-- ARGV: count channel retention_s max_starts (id attempt node slot inc why)*
-- RETURNS: a word a task: pending, dead (started as often as it may), cancelled (as was asked for), none
-- ERRORS: PSARGS
-- INVARIANT: the task goes back before its slot is freed, and is fenced by that: pending cannot start or finish.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include arguments
--- @include clock
--- @include queue
local meta, pending, later, taken, placed, verdicts = unpack(KEYS, 1, 6)
local count, channel, retention_s, max_starts = tonumber(ARGV[1]) or 0, ARGV[2], ARGV[3], tonumber(ARGV[4])
local bad = bad_count('requeue', 6 + count, 4 + 6 * count)
if bad then return bad end
local now, idle, back, replies = now_ms(), redis.call('ZCARD', pending) == 0, false, {}
for i = 1, count do
  local id, attempt, node, slot, inc, why = unpack(ARGV, 6 * i - 1, 6 * i + 4)
  local key = KEYS[6 + i]
  local task = redis.call('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'cancel', 'starts')
  local state, here = task[1], task[3] == node and task[4] == slot and task[5] == inc
  local held = task[2] == attempt and (state == 'taken' or ((state == 'placed' or state == 'running') and here))
  if not held then
    replies[i] = 'none'
  else
    redis.call('HDEL', taken, id)
    redis.call('HDEL', placed, id)
    if task[6] then
      replies[i] = 'cancelled'
    elseif state == 'running' and (tonumber(task[7]) or 0) >= max_starts then
      replies[i] = 'dead'
    else
      replies[i] = 'pending'
    end
    if replies[i] == 'pending' then
      if why ~= '' then redis.call('HSET', key, 'why', why) end
      to_pending(key, id, pending, later, nil)
      back = true
    else
      to_final(key, replies[i], now, why, retention_s)
      to_verdict(verdicts, id, replies[i], why)
    end
  end
end
if idle and back then wake(channel, tonumber(redis.call('HGET', meta, 'submitted') or 0)) end
return replies
