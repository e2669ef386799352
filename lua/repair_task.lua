-- repair_task: repair a task whose record and indexes contradict each other, which no script causes.
-- KEYS: pending later taken placed outbox task
-- ARGV: id retention_s why
-- RETURNS: sound (they agree: nothing has changed), gone (it was listed and has no record), taken, placed or running (its
--   index agrees again), pending (it has no readable place), failed (its record is corrupt), or its final state
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: afterwards the task is in the indexes of its state, and in no others.
-- ATOMICITY: whole; pending is a fence: a run that still goes on changes nothing.
-- COMPLEXITY: O(log pending)
--- @include queue
local bad = bad_retention(args.retention_s)
if bad then return bad end
local id, why = args.id, args.why
local state, attempt, needs, scheduler, p, node, slot, inc = unpack(redis.call('HMGET', task, 'state', 'attempt', 'needs',
  'scheduler', 'partition', 'node', 'slot', 'inc'))
local owner, place = redis.call('HGET', taken, id), redis.call('HGET', placed, id)
local waits = redis.call('ZSCORE', pending, id) or redis.call('ZSCORE', later, id)
local at = string.format('p%s %s/%s inc=%s attempt=%s', p or '', node or '', slot or '', inc or '', attempt or '')
local home = {pending = waits, taken = owner and owner == scheduler, placed = place == at, running = place == at}
local lists = (waits and 1 or 0) + (owner and 1 or 0) + (place and 1 or 0)
local broken = flaw(attempt, needs)
local ended = FINAL[state] or redis.call('EXISTS', task) == 0
if lists == 0 and ended or not broken and home[state] and lists == 1 then return 'sound' end
redis.call('HDEL', taken, id)
redis.call('HDEL', placed, id)
redis.call('ZREM', pending, id)
redis.call('ZREM', later, id)
if ended then return FINAL[state] and state or 'gone' end
if broken then
  to_final(task, 'failed', now_ms(), why .. ': ' .. broken, args.retention_s)
  to_outbox(outbox, id, 'failed', why .. ': ' .. broken)
  return 'failed'
end
if state == 'taken' and string.find(scheduler or '', '^%w[%w_.-]*$') then
  redis.call('HSET', taken, id, scheduler)
elseif home[state] ~= nil and state ~= 'pending' and string.find(at, '^p%d+ %w[%w_.@-]*/%d+ inc=%d+ attempt=%S+$') then
  redis.call('HSET', placed, id, at)
else
  to_pending(task, id, pending, later, nil)
  return 'pending'
end
return state
