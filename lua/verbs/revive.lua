-- revive: return dead tasks to pending. No start of theirs counts any more.
-- KEYS: meta kinds changed outbox expires tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events accounts policy holders:
-- ARGV: count channel why id*
-- RETURNS: a word per task: revived, or the task's present state; gone for an id without a record
-- ERRORS: PSARGS
-- INVARIANT: only a dead task goes back. Its attempts go on counting, so that no attempt is given
--   out twice.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include task/transitions

-- load_records: return {id -> record} of the tasks of all rows; or nil and the error reply for a
-- damaged queue.
local function load_records()
  local ids = {}
  for i, row in rows() do
    ids[i] = row.id
  end
  local records = load_tasks(ids)
  for _, task in pairs(records) do
    local refusal = bad_home(task)
    if refusal then
      return nil, refusal
    end
  end
  return records
end

-- watch_expiry: add a task to those that may expire, if its line has an expiry.
local function watch_expiry(task)
  local due = option(task.line, 'expires')
  if due and #due < 16 and string.find(due, '^%d+$') then
    redis.call('ZADD', expires, due, task.id)
  end
end

-- revive_task: return a dead task to pending.
local function revive_task(task)
  local run = task.extra.run or ''
  local _, started = run_parts(run)
  task.attempt = attempt_of(run) -- to_wait reads the number of takes from the attempt
  task.started = started
  put_extra(task, 'why', args.why) -- comes first: a full server refuses it
  redis.call('HDEL', KEY.extra .. task.id, 'run', 'ended_ms')
  redis.call('ZREM', dead, task.id)
  set_option(task.line, 'starts', nil)
  task.line.ready = now_ms()
  watch_expiry(task)
  to_wait(task)
  to_outbox(task.id, 'pending', args.why)
  note_task(task, 'revived', args.why)
end

local records, refusal = load_records()
if refusal then
  return refusal
end
local replies = {}
for i, row in rows() do
  local task = records[row.id]
  if task and task.state == 'dead' and task.line then
    revive_task(task)
    replies[i] = 'revived'
  else
    replies[i] = task and task.state or 'gone'
  end
end
write_outbox(outbox)
if write_kinds(meta, kinds, changed) then
  wake(args.channel, meta)
end
return replies
