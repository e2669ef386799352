-- expire: cancel tasks that wait past their expiry, and forget kinds that have ended. The leader
-- calls expire in each pass; take checks the expiry as well.
-- KEYS: meta kinds changed later outbox expires tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events accounts policy holders:
-- ARGV: channel retention_s limit
-- RETURNS: the ids of the expired tasks
-- ERRORS: PSARGS
-- INVARIANT: only pending and taken tasks expire. A task that is placed or runs is checked again a
--   minute later: the task may be pending by then. A task with a successor is checked again too:
--   the successor may expire.
-- ATOMICITY: state and indexes change together.
-- COMPLEXITY: O(limit * log pending)
--- @include task/transitions
--- @include kind/sweep
local expired_ids = {}

-- expiry_of: return when a task expires (ms, as text); nil for a task without an expiry.
local function expiry_of(task)
  local due = task.line and option(task.line, 'expires')
  if not due or #due >= 16 then
    return nil
  end
  return string.match(due, '^%d+$')
end

-- check_later: look at a task again in a minute, or at the expiry of a task that has no run.
local function check_later(task, due, now)
  local next_check = now + 60000
  if due and not task.run then
    next_check = math.min(next_check, due)
  end
  redis.call('ZADD', expires, string.format('%d', next_check), task.id)
end

-- cancel_expired: cancel a task whose expiry has come.
local function cancel_expired(task, now)
  redis.call('ZREM', expires, task.id)
  redis.call('ZREM', later, task.id)
  if task.state == 'pending' then
    leave(task.line.kind, task.id, task.line.order)
  end
  end_unseen(task, 'cancelled', now, 'expired', args.retention_s)
  expired_ids[#expired_ids + 1] = task.id
end

-- judge_expiry: cancel a task whose expiry has come. For any other task, note when to look at the
-- task again, or take the task out of `expires` if the task has no expiry or has ended.
local function judge_expiry(id, task, now)
  if not task or FINAL[task.state] then
    redis.call('ZREM', expires, id)
    return
  end
  local due = expiry_of(task)
  if task.run or task.extra.next and not is_past(due, now) then
    check_later(task, due, now) -- a line does not have its successor's expiry yet
  elseif not due then
    redis.call('ZREM', expires, id)
  elseif not is_past(due, now) then
    redis.call('ZADD', expires, due, id)
  else
    cancel_expired(task, now)
  end
end

local refusal = bad_retention(args.retention_s) or bad_number('limit', args.limit, 0, 1000)
if refusal then
  return refusal
end
local now = now_ms()
local ids = redis.call('ZRANGEBYSCORE', expires, '-inf', now, 'LIMIT', 0, args.limit)
local records = load_tasks(ids)
refusal = bad_queues(records)
if refusal then
  return refusal
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', taken, '')
for _, id in ipairs(ids) do
  judge_expiry(id, records[id], now)
end
write_outbox(outbox)
write_waiting(args.channel)
sweep(meta, kinds, changed)
return expired_ids
