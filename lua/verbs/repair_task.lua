-- repair_task: repair a task whose hashes and indexes contradict each other. Only damage causes a
-- contradiction: no script writes one.
-- KEYS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 expires pending: extra:
-- ALSO: events accounts policy holders:
-- ARGV: id channel retention_s why kind run
--   kind: '' or the kind in whose queue the task was seen, which may not be its own
--   run: '' or what `running` should have for the task, because a lease was seen that says so
-- RETURNS: a word
--   sound: all keys agree, and nothing has changed
--   gone: the task was listed, and has no record
--   pending: the task waits again, because it had no readable place
--   failed: the task ended, because its line is corrupt or it has no message
--   any other state: the task is in the index of this state only
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: afterwards the task is in the indexes of its state, and in no others.
-- ATOMICITY: the whole call; pending is a fence: a run that still goes on changes nothing.
-- COMPLEXITY: O(log pending); O(taken + running) if an account of the task is wrong; O(accounts) if
--   the line of a task that runs is lost
--- @include repair/task_facts
--- @include task/transitions

-- remove_from: remove a task from hashes that have its id as a field.
local function remove_from(id, ...)
  for _, key in ipairs({...}) do
    redis.call('HDEL', key, id)
  end
end

-- remove_wrong_entries: remove a task from the queues, from `later`, and from the records of ended
-- tasks if they contradict; list its expiry if nobody would check it.
local function remove_wrong_entries(task, home, kind_seen)
  -- The order '0' makes kind_line look for the first task: the entry may have any order.
  leave(home, task.id, '0')
  leave(kind_seen, task.id, '0')
  redis.call('ZREM', later, task.id)
  if task.is_late then
    redis.call('ZADD', expires, option(task.line, 'expires'), task.id)
  end
  if task.is_double or not task.is_well_ended then
    remove_from(task.id, ended, ended_1, ended_2)
  end
end

-- keep_end: leave a task that has ended in `ended` only. If its record cannot be read, the task
-- ends as failed.
local function keep_end(task, now)
  remove_from(task.id, messages, taken, running)
  redis.call('ZREM', dead, task.id)
  if task.is_well_ended then
    return task.state
  end
  local text = task.is_readable and task.text or 'failed ' .. now .. '\n\n\n' .. args.why
  redis.call('HSET', ended, task.id, text)
  return task.is_readable and task.state or 'failed'
end

-- fail: end as failed a task that cannot run, because its line or its message is damaged.
local function fail(task, now)
  redis.call('ZREM', dead, task.id)
  end_unseen(task, 'failed', now, args.why .. ': ' .. task.flaw, args.retention_s)
  redis.call('HDEL', extra_prefix .. task.id, 'run', 'ended_ms')
  remove_from(task.id, taken, running)
  return 'failed'
end

-- keep_run: leave a task in `running` only, because ending a run would lose its work. A run without
-- a message goes on; if the run is lost, the task fails.
local function keep_run(task)
  redis.call('HDEL', taken, task.id)
  redis.call('ZREM', dead, task.id)
  if not task.message then
    redis.call('HSET', messages, task.id, '')
  end
  adopt_attempt(task.kept_run, task.line)
  put_line(task)
  redis.call('HSET', running, task.id, task.kept_run)
  return string.find(task.kept_run, ' started=%d+$') and 'running' or 'placed'
end

-- keep_taken: leave a task with its scheduler.
local function keep_taken(task)
  redis.call('ZREM', dead, task.id)
  if task.is_remade then
    put_line(task)
  end
  return task.state
end

-- was_dead: return whether a damaged task was in the state dead.
local function was_dead(task)
  local is_kept_dead = task.died and task.line.mark == '+' and not task.order
  return not task.owner and not task.run and (task.extra.ended_ms or is_kept_dead)
end

-- keep_dead: leave a task in `dead`.
local function keep_dead(task, now)
  if not task.died then
    redis.call('ZADD', dead, tonumber(task.extra.ended_ms) or now, task.id)
  end
  return 'dead'
end

-- let_wait: let a task wait, until it is ready.
local function let_wait(task, now)
  redis.call('ZREM', dead, task.id)
  local ready = task.line.ready
  to_wait(task, tonumber(ready) > tonumber(now) and ready or nil)
  remove_from(task.id, taken, running)
  return 'pending'
end

-- settle: leave a task in the index of one state only. Returns the word of the reply.
local function settle(task, now)
  if task.has_ended then
    return keep_end(task, now)
  elseif task.flaw then
    return fail(task, now)
  elseif task.kept_run then
    return keep_run(task)
  elseif task.is_taken and not task.run then
    return keep_taken(task)
  elseif was_dead(task) then
    return keep_dead(task, now)
  end
  return let_wait(task, now)
end

-- enter_accounts: let a task count to its accounts if it is taken, placed or running.
local function enter_accounts(task, state)
  local counts = state == 'taken' or state == 'placed' or state == 'running'
  if counts and has_accounts(task.line.kind) then
    enter_missing(task.id, task.line.kind)
  end
end

local refusal = bad_retention(args.retention_s)
  or args.kind ~= '' and bad_kind(pending_prefix, args.kind)
if refusal then
  return refusal
end
local now = now_ms()
local task = find_task(args.id, args.kind, args.run, now)
local home = task.line and task.line.kind or args.kind
local kind_seen = args.kind == '' and home or args.kind
refusal = bad_kind(pending_prefix, home)
if refusal then
  return refusal
end
add_indexes(task, QUEUES[home], QUEUES[kind_seen], now)
judge_run(task)
if agree(task) then
  return 'sound'
end
remove_wrong_entries(task, home, kind_seen)
local word = settle(task, now)
enter_accounts(task, word)
write_outbox(outbox)
write_waiting(args.channel)
return word
