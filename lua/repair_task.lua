-- repair_task: repair a task whose hashes and indexes contradict each other, which no script causes.
-- KEYS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ARGV: id retention_s why kind
--   kind: '' or the kind of which it was seen to wait, which may not be its own
-- RETURNS: sound (they agree: nothing has changed), gone (it was listed and has no record), pending (it had no readable
--   place), failed (its line is corrupt, or it has no message), or its state: it is now in the index of this state only
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: afterwards the task is in the indexes of its state, and in no others.
-- ATOMICITY: whole; pending is a fence: a run that still goes on changes nothing.
-- COMPLEXITY: O(log pending)
--- @include queue
--- @include lease
--- @include record
local id, why, now = args.id, args.why, now_ms()
local task = load_tasks({id})[id] or {id = id, state = 'gone', extra = {}}
local home = task.line and task.line.kind or args.kind
local seen = args.kind == '' and home or args.kind
local bad = bad_retention(args.retention_s) or bad_kind(pending_prefix, home) or bad_kind(pending_prefix, seen)
if bad then return bad end
local owner, run = redis.call('HGET', taken, id), redis.call('HGET', running, id)
local queued = redis.call('ZSCORE', QUEUES[home].pending, id) and 1 or 0
local elsewhere = seen ~= home and redis.call('ZSCORE', QUEUES[seen].pending, id) and 1 or 0
local delayed, died = redis.call('ZSCORE', later, id) and 1 or 0, redis.call('ZSCORE', dead, id) and 1 or 0
local held = (owner and 1 or 0) + (run and 1 or 0)
local lists, message = queued + elsewhere + delayed + died + held, redis.call('HEXISTS', messages, id) == 1
local over = task.text or not task.raw and held == 0
local broken = not over and (flaw(task.line) or not message and 'message')
local takes, life = string.match(owner or '', '^(%d+)@(%d+)%.%S+%.%w+$')
local taker = takes and #takes < 10 and task.line and life == task.line.life
local started = run and string.match(run, ' started=(%d+)$')
local place = run and (not started or #started < 16) and task_at(string.gsub(run, ' started=%d+$', '')) == id
local readable = (taker or not owner) and (place or not run)
if over and lists == 0 and not message then return 'sound' end
local agrees_with_end = died == 1 or task.state ~= 'dead'
if not over and not broken and readable and lists == 1 and elsewhere == 0 and agrees_with_end then return 'sound' end
leave(home, id, '0') -- its order there may be another: look for the first
leave(seen, id, '0')
redis.call('ZREM', later, id)
local word = task.state
if over then
  redis.call('HDEL', messages, id)
  redis.call('HDEL', taken, id)
  redis.call('HDEL', running, id)
  redis.call('ZREM', dead, id)
elseif broken then
  word = 'failed'
  redis.call('ZREM', dead, id)
  end_unseen(task, word, now, why .. ': ' .. broken, args.retention_s)
  redis.call('HDEL', taken, id)
elseif place then -- the run is what may cost work: it is kept
  redis.call('HDEL', taken, id)
  redis.call('ZREM', dead, id)
elseif taker and not run then
  redis.call('ZREM', dead, id)
elseif held == 0 and (died == 1 or task.extra.ended_ms) then
  word = 'dead'
  if died == 0 then redis.call('ZADD', dead, tonumber(task.extra.ended_ms) or now, id) end
else
  word = 'pending'
  redis.call('ZREM', dead, id)
  to_wait(task)
  redis.call('HDEL', taken, id)
  redis.call('HDEL', running, id)
end
write_outbox(outbox)
write_kinds(meta, kinds, changed)
return word
