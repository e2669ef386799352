-- cancel: cancel tasks that do not run; ask the agents of those that run to end them.
-- KEYS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events
-- ARGV: count retention_s why how id*
--   how: the signal that ends the run, SIGTERM; 'after' lets the run end, and the task does not run again; 'waiting' leaves a
--   task alone that has a place, 'placed' one that runs
-- RETURNS: two values per task: 'cancelled', ''; 'asked', ''; or 'none', its state; the state of an unknown id is gone
-- ERRORS: PSARGS
-- INVARIANT: a cancelled task never starts; a cancel that was asked for survives the task's return to pending.
-- ATOMICITY: each task by itself; state and indexes change together.
-- COMPLEXITY: O(count * log pending)
--- @include task/transitions
local bad, how, ids, replies = bad_retention(args.retention_s), args.how, {}, {}
if bad then return bad end
for i, row in rows() do ids[i] = row.id end
local found, now, unseen = load_tasks(ids), now_ms(), {}
for _, task in pairs(found) do bad = bad or task.state == 'pending' and bad_home(task) or nil end
if bad then return bad end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
for i, row in rows() do
  local task = found[row.id]
  local state = task and task.state or 'gone'
  local further = how == 'waiting' and (state == 'running' or state == 'placed') or how == 'placed' and state == 'running'
  if state == 'gone' or FINAL[state] or further then
    replies[2 * i - 1], replies[2 * i] = 'none', state
  elseif state == 'running' then
    if task.line and (not task.extra.cancel or how ~= 'after') then
      task.extra.cancel = how
      put_extra(task, 'cancel', how)
      put_line(task)
    end
    replies[2 * i - 1], replies[2 * i] = 'asked', ''
  else
    if state == 'pending' and task.line then leave(task.line.kind, task.id, task.line.order) end
    unseen[#unseen + 1] = task.id
    end_unseen(task, 'cancelled', now, args.why, args.retention_s)
    replies[2 * i - 1], replies[2 * i] = 'cancelled', ''
  end
end
write_all('ZREM', later, unseen)
write_outbox(outbox)
write_kinds(meta, kinds, changed)
return replies
