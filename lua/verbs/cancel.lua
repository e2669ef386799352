-- cancel: cancel tasks that do not run; ask the agents of those that run to end them.
-- KEYS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events accounts policy holders:
-- ARGV: count channel retention_s why how id*
--   how: the signal that ends a run, SIGTERM
--     'after': a run goes on, and its task does not run again
--     'waiting': a task that has a place is left alone
--     'placed': a task that runs is left alone
-- RETURNS: two values per task: 'cancelled', ''; 'asked', ''; or 'none' and the task's state, gone
--   for an unknown id
-- ERRORS: PSARGS
-- INVARIANT: a cancelled task never starts; a cancel that was asked for survives the task's return
--   to pending.
-- ATOMICITY: each task by itself; state and indexes change together.
-- COMPLEXITY: O(count * log pending)
--- @include task/transitions
local cancelled_ids = {}

-- load_records: return {id -> record} of the tasks of all rows.
local function load_records()
  local ids = {}
  for i, row in rows() do
    ids[i] = row.id
  end
  return load_tasks(ids)
end

-- is_spared: return whether this call leaves a task of a state alone.
local function is_spared(state)
  if state == 'gone' or FINAL[state] then
    return true
  end
  if args.how == 'waiting' and state == 'placed' then
    return true
  end
  return state == 'running' and (args.how == 'waiting' or args.how == 'placed')
end

-- ask_to_end: write into the task's rare fields that its agent shall end the run. The order 'after'
-- (the run goes on, the task does not run again) does not replace a signal.
local function ask_to_end(task)
  if task.line and (not task.extra.cancel or args.how ~= 'after') then
    task.extra.cancel = args.how
    put_extra(task, 'cancel', args.how)
    put_line(task)
  end
end

-- cancel_task: cancel a task, or ask for its end; return the two values of the reply.
local function cancel_task(task, now)
  local state = task and task.state or 'gone'
  if is_spared(state) then
    return 'none', state
  end
  if state == 'running' then
    ask_to_end(task)
    return 'asked', ''
  end
  if state == 'pending' and task.line then
    leave(task.line.kind, task.id, task.line.order)
  end
  cancelled_ids[#cancelled_ids + 1] = task.id
  end_unseen(task, 'cancelled', now, args.why, args.retention_s)
  return 'cancelled', ''
end

local refusal = bad_retention(args.retention_s)
if refusal then
  return refusal
end
local records = load_records()
local now = now_ms()
refusal = bad_queues(records)
if refusal then
  return refusal
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', taken, '')
local replies = {}
for i, row in rows() do
  local word, state = cancel_task(records[row.id], now)
  replies[2 * i - 1] = word
  replies[2 * i] = state
end
write_all('ZREM', later, cancelled_ids)
write_outbox(outbox)
write_waiting(args.channel)
return replies
