-- revive: return dead tasks to pending, with all their starts before them.
-- KEYS: meta kinds changed outbox expires tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events
-- ARGV: count channel why id*
-- RETURNS: a word per task: revived, or its present state; gone if it has no record
-- ERRORS: PSARGS
-- INVARIANT: only a dead task goes back; its attempts go on counting, so that none is given out twice.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include task/transitions
local ids, bad, replies = {}, nil, {}
for i, row in rows() do ids[i] = row.id end
local found = load_tasks(ids)
for _, task in pairs(found) do bad = bad or bad_home(task) end
if bad then return bad end
for i, row in rows() do
  local task = found[row.id]
  if task and task.state == 'dead' and task.line then
    local run = task.extra.run or ''
    local _, started = run_parts(run)
    task.attempt, task.started = attempt_of(run), started -- so its takes go on
    put_extra(task, 'why', args.why) -- first: a full server takes no more work in, docs/decisions/0015
    redis.call('HDEL', KEY.extra .. task.id, 'run', 'ended_ms')
    redis.call('ZREM', dead, task.id)
    set_option(task.line, 'starts', nil)
    task.line.ready = now_ms()
    local due = option(task.line, 'expires')
    if due and #due < 16 and string.find(due, '^%d+$') then redis.call('ZADD', expires, due, task.id) end
    to_wait(task)
    to_outbox(task.id, 'pending', args.why)
    note_task(task, 'revived', args.why)
    replies[i] = 'revived'
  else
    replies[i] = task and task.state or 'gone'
  end
end
write_outbox(outbox)
if write_kinds(meta, kinds, changed) then wake(args.channel, meta) end
return replies
