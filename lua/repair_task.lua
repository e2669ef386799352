-- repair_task: a task whose record and indexes do not say the same, which no script can have brought about, is repaired.
-- KEYS: pending later taken placed outbox task
-- ARGV: id retention_s why
-- RETURNS: sound (they say the same: nothing was changed), gone (it was listed, and has no record), taken, placed or running
--   (its index says it again), pending (it has no place that can be read), failed (its record cannot be run), or the final
--   state that it has
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: after it the task is in the indexes that its state names, and in no others.
-- ATOMICITY: whole; pending is a fence, so that what still runs of it changes nothing.
-- COMPLEXITY: O(log pending)
--- @include arguments
--- @include queue
local bad = bad_count('repair_task', 6, 3) or bad_retention(ARGV[2])
if bad then return bad end
local pending, later, taken, placed, outbox, key = unpack(KEYS)
local id, retention_s, why = unpack(ARGV)
local state, attempt, needs, scheduler, p, node, slot, inc = unpack(redis.call('HMGET', key, 'state', 'attempt', 'needs',
  'scheduler', 'partition', 'node', 'slot', 'inc'))
local owner, place = redis.call('HGET', taken, id), redis.call('HGET', placed, id)
local waits = redis.call('ZSCORE', pending, id) or redis.call('ZSCORE', later, id)
local at = string.format('p%s %s/%s inc=%s attempt=%s', p or '', node or '', slot or '', inc or '', attempt or '')
local home = {pending = waits, taken = owner and owner == scheduler, placed = place == at, running = place == at}
local lists = (waits and 1 or 0) + (owner and 1 or 0) + (place and 1 or 0)
local broken = flaw(attempt, needs)
local ended = FINAL[state] or redis.call('EXISTS', key) == 0
if lists == 0 and ended or not broken and home[state] and lists == 1 then return 'sound' end
redis.call('HDEL', taken, id)
redis.call('HDEL', placed, id)
redis.call('ZREM', pending, id)
redis.call('ZREM', later, id)
if ended then return FINAL[state] and state or 'gone' end
if broken then
  to_final(key, 'failed', now_ms(), why .. ': ' .. broken, retention_s)
  to_outbox(outbox, id, 'failed', why .. ': ' .. broken)
  return 'failed'
end
if state == 'taken' and string.find(scheduler or '', '^%w[%w_.-]*$') then
  redis.call('HSET', taken, id, scheduler)
elseif home[state] ~= nil and state ~= 'pending' and string.find(at, '^p%d+ %w[%w_.@-]*/%d+ inc=%d+ attempt=%S+$') then
  redis.call('HSET', placed, id, at)
else
  to_pending(key, id, pending, later, nil)
  return 'pending'
end
return state
