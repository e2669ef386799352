-- repair_task: repair a task whose record and indexes contradict each other, which no script causes.
-- KEYS: meta kinds changed later taken placed outbox pending: task
-- ARGV: id retention_s why kind
--   kind: '' or the kind of which it was seen to wait, which may not be its record's
-- RETURNS: sound (they agree: nothing has changed), gone (it was listed and has no record), taken, placed or running (its
--   index agrees again), pending (it has no readable place), failed (its record is corrupt), or its final state
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: afterwards the task is in the indexes of its state, and in no others.
-- ATOMICITY: whole; pending is a fence: a run that still goes on changes nothing.
-- COMPLEXITY: O(log pending)
--- @include queue
local home = home_of(task)
local seen = args.kind == '' and home.kind or args.kind
local bad = bad_retention(args.retention_s) or bad_kind(pending_prefix, home.kind) or bad_kind(pending_prefix, seen)
if bad then return bad end
local id, why = args.id, args.why
local state, attempt, scheduler, p, node, slot, inc, needs, name = unpack(redis.call('HMGET', task, 'state', 'attempt',
  'scheduler', 'partition', 'node', 'slot', 'inc', 'needs', 'name'))
local owner, place = redis.call('HGET', taken, id), redis.call('HGET', placed, id)
local queued = redis.call('ZSCORE', QUEUES[home.kind].pending, id) and 1 or 0
local delayed = redis.call('ZSCORE', later, id) and 1 or 0
local elsewhere = seen ~= home.kind and redis.call('ZSCORE', QUEUES[seen].pending, id) and 1 or 0
local at = string.format('p%s %s/%s inc=%s attempt=%s', p or '', node or '', slot or '', inc or '', attempt or '')
local agrees = {pending = queued + delayed == 1, taken = owner and owner == scheduler, placed = place == at,
  running = place == at}
local lists = queued + delayed + elsewhere + (owner and 1 or 0) + (place and 1 or 0)
local broken = flaw(attempt, needs, name)
local ended = FINAL[state] or redis.call('EXISTS', task) == 0
if lists == 0 and ended or not broken and agrees[state] and lists == 1 and elsewhere == 0 then return 'sound' end
redis.call('HDEL', taken, id)
redis.call('HDEL', placed, id)
leave(home.kind, id, '0') -- its order there may be another: look for the first
leave(seen, id, '0')
redis.call('ZREM', later, id)
local word = state
if ended then
  word = FINAL[state] and state or 'gone'
elseif broken then
  word = 'failed'
  to_final(task, word, now_ms(), why .. ': ' .. broken, args.retention_s)
  to_outbox(id, word, why .. ': ' .. broken)
elseif state == 'taken' and string.find(scheduler or '', '^%w[%w_.-]*$') then
  redis.call('HSET', taken, id, scheduler)
elseif (state == 'placed' or state == 'running') and string.find(at, '^p%d+ %w[%w_.@-]*/%d+ inc=%d+ attempt=%S+$') then
  redis.call('HSET', placed, id, at)
else
  word = 'pending'
  to_pending(task, id, home)
end
write_outbox(outbox)
write_kinds(meta, kinds, changed)
return word
