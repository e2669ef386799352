-- requeue: let tasks wait again whose attempts lost their leases, if they have the attempt still.
-- KEYS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events accounts policy holders:
-- READS: meta kinds changed later
-- ARGV: count channel retention_s max_starts (id attempt text why how delay_ms)*
--   text: the lease
--   max_starts: the limit of a task whose line has no limit
--   delay_ms: for how long the task must not be taken; '' if it may be taken at once
--   how: '' if the lease is lost
--     'unstarted': the row concerns a placed task only, not a task that has started
--     'recalled': the run was ended on purpose, or must not begin yet; its start does not count
--     'unbegun': the run did not begin; its start does not count, and the task stays ready since
--       before
-- RETURNS: a word per task: pending (the task waits), dead (its starts are used up), cancelled (a
--   cancel was asked for), none (the task has another attempt or place)
-- ERRORS: PSARGS
-- INVARIANT: a task goes back before its slot is freed, which fences the run: a pending task cannot
--   start or finish. A dead task stays while `dead` lists the task: the newest 10,000. `history`
--   has the last 10 lost attempts. While meta, kinds, changed, later or pending: is damaged, a task
--   goes back to no index; the leader lets the task wait later (repair_task).
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include task/history
--- @include task/transitions
local max_starts = tonumber(args.max_starts)
local lost = 0
local died = 0

-- check_arguments: return the error reply for a malformed argument, or nil.
local function check_arguments()
  local refusal = bad_number('max_starts', args.max_starts, 1, 1e6)
  for _, row in rows() do
    if row.delay_ms ~= '' then
      refusal = refusal or bad_number('delay_ms', row.delay_ms, 0, 9e14)
    end
  end
  return refusal or bad_retention(args.retention_s)
end

-- load_records: return {id -> record} of the tasks of all rows.
local function load_records()
  local ids = {}
  for i, row in rows() do
    ids[i] = row.id
  end
  return load_tasks(ids)
end

-- is_current: return whether a task still has the attempt of a row, at the place of the row if the
-- attempt has a place. A row 'unstarted' is for placed tasks only. Ask right before the row is
-- carried out: an earlier row may have ended the attempt.
local function is_current(task, row)
  if not task or task.attempt ~= row.attempt then
    return false
  end
  if row.how == 'unstarted' and task.state ~= 'placed' then
    return false
  end
  return task.state == 'taken' or task.place == row.text
end

-- count_starts: return how many starts of a task were lost, and whether the present start is one of
-- them.
local function count_starts(task, how)
  local starts = tonumber(option(task.line, 'starts')) or 0
  local is_counted = task.state == 'running' and how ~= 'recalled' and how ~= 'unbegun'
  return is_counted and starts + 1 or starts, is_counted
end

-- write_starts: write the number of starts into a line. The line of a cancelled task keeps the
-- number from before its last run.
local function write_starts(line, starts)
  set_option(line, 'starts', starts > 0 and string.format('%d', starts) or nil)
end

-- end_as_dead: list a task as dead.
local function end_as_dead(task, row, starts, now)
  write_starts(task.line, starts)
  bury(task, now, row.why, args.retention_s)
  died = died + 1
  to_outbox(task.id, 'dead', row.why)
  note_task(task, 'dead', row.why, row.attempt, row.text)
end

-- return_to_pending: return a task to pending.
local function return_to_pending(task, row, starts, now)
  local state = task.state
  if row.why ~= '' then
    put_extra(task, 'why', row.why)
  end
  write_starts(task.line, starts)
  if row.delay_ms == '' and (task.started or row.how == 'unstarted') then
    note_last(task.line, task.place)
  end
  if row.how == 'unbegun' or row.delay_ms ~= '' then
    task.started = nil
  end
  to_wait(task, after_ms(now, row.delay_ms), row.how == 'unbegun')
  if row.delay_ms == '' and is_loss(state, row.how) then
    note_task(task, 'requeued', row.why, row.attempt, row.text)
  end
end

-- give_up_attempt: end the attempt of a row; return the word of the reply.
local function give_up_attempt(task, row, now)
  if not is_current(task, row) then
    return 'none'
  end
  if not task.line then
    end_unseen(task, 'failed', now, DAMAGED, args.retention_s)
    return 'none'
  end
  local starts, is_counted = count_starts(task, row.how)
  if row.delay_ms == '' then
    lost = lost + 1
    add_setback(task, row.attempt, row.text, row.why, now)
  end
  if task.extra.cancel then
    end_unseen(task, 'cancelled', now, row.why, args.retention_s)
    return 'cancelled'
  end
  if is_counted and starts >= (tonumber(option(task.line, 'max')) or max_starts) then
    end_as_dead(task, row, starts, now)
    return 'dead'
  end
  return_to_pending(task, row, starts, now)
  return 'pending'
end

-- add_total: add to a total in meta. Only people read the totals, so a damaged total begins anew.
local function add_total(name, number)
  if number > 0 and type(redis.pcall('HINCRBY', meta, name, number)) == 'table' then
    redis.pcall('HSET', meta, name, number)
  end
end

local refusal = check_arguments()
if refusal then
  return refusal
end
local records = load_records()
local now = now_ms()
look_at_index()
for _, task in pairs(records) do
  look_at_home(task)
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', taken, '')
local replies = {}
for i, row in rows() do
  replies[i] = give_up_attempt(records[row.id], row, now)
end
add_total('lost', lost)
add_total('died', died)
write_outbox(outbox)
write_waiting(args.channel)
return replies
