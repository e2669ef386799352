-- repair_task: repair a task whose hashes and indexes contradict each other, which no script causes.
-- KEYS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 expires pending: extra:
-- ALSO: events
-- ARGV: id retention_s why kind run
--   kind: '' or the kind of which it was seen to wait, which may not be its own
--   run: '' or what `running` should have for it, because a lease was seen that says so
-- RETURNS: sound (they agree: nothing has changed), gone (it was listed and has no record), pending (it had no readable
--   place), failed (its line is corrupt, or it has no message), or its state: it is now in the index of this state only
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: afterwards the task is in the indexes of its state, and in no others.
-- ATOMICITY: whole; pending is a fence: a run that still goes on changes nothing.
-- COMPLEXITY: O(log pending)
--- @include repair/task_facts
--- @include task/transitions
local id, why, now = args.id, args.why, now_ms()
local bad = bad_retention(args.retention_s) or args.kind ~= '' and bad_kind(pending_prefix, args.kind)
if bad then return bad end
local task = find_task(id, args.kind, args.run, now)
local home = task.line and task.line.kind or args.kind
local seen = args.kind == '' and home or args.kind
bad = bad_kind(pending_prefix, home)
if bad then return bad end
add_indexes(task, QUEUES[home], QUEUES[seen], now)
judge_run(task)
if agree(task) then return 'sound' end
leave(home, id, '0') -- its order there may be another: look for the first
leave(seen, id, '0')
redis.call('ZREM', later, id)
local word = task.state
if task.late then redis.call('ZADD', expires, option(task.line, 'expires'), id) end
if task.twice or not task.well_ended then
  redis.call('HDEL', ended, id)
  redis.call('HDEL', ended_1, id)
  redis.call('HDEL', ended_2, id)
end
if task.over then
  redis.call('HDEL', messages, id)
  redis.call('HDEL', taken, id)
  redis.call('HDEL', running, id)
  redis.call('ZREM', dead, id)
  if not task.well_ended then
    redis.call('HSET', ended, id, task.readable and task.text or 'failed ' .. now .. '\n\n\n' .. why)
    word = task.readable and word or 'failed'
  end
elseif task.broken then
  word = 'failed'
  redis.call('ZREM', dead, id)
  end_unseen(task, word, now, why .. ': ' .. task.broken, args.retention_s)
  redis.call('HDEL', extra_prefix .. id, 'run', 'ended_ms')
  redis.call('HDEL', taken, id)
  redis.call('HDEL', running, id)
elseif task.kept then -- the run is what may cost work: it is kept
  redis.call('HDEL', taken, id)
  redis.call('ZREM', dead, id)
  if not task.message then redis.call('HSET', messages, id, '') end -- if the run is lost, it fails with the next
  adopt(task.kept, task.line)
  put_line(task)
  redis.call('HSET', running, id, task.kept)
  word = string.find(task.kept, ' started=%d+$') and 'running' or 'placed'
elseif task.taker and not task.run then
  redis.call('ZREM', dead, id)
  if task.remade then put_line(task) end
elseif not task.owner and not task.run and (task.extra.ended_ms or task.died and task.line.mark == '+' and not task.order) then
  word = 'dead'
  if not task.died then redis.call('ZADD', dead, tonumber(task.extra.ended_ms) or now, id) end
else
  word = 'pending'
  redis.call('ZREM', dead, id)
  to_wait(task, tonumber(task.line.ready) > tonumber(now) and task.line.ready or nil)
  redis.call('HDEL', taken, id)
  redis.call('HDEL', running, id)
end
write_outbox(outbox)
write_kinds(meta, kinds, changed)
return word
