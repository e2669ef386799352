-- Let tasks wait again and end them. Scripts that call these functions have, beside the keys of
-- lib/task/record.lua, messages and pending:.
--- @include call/clock
--- @include cluster/events
--- @include kind/changing
--- @include task/successor
--- @include task/outbox
--- @include task/record
--- @include cluster/wake
local DAMAGED = 'its record is damaged'

-- bad_home: look at the queue in which a task would wait. Return the error reply for a key of
-- another type, or nil.
local function bad_home(task)
  return task.line and bad_kind(KEY.pending, task.line.kind)
end

-- look_at_index: set APART if the index of waiting tasks is damaged. A script that reports on runs
-- must work with a damaged index too.
local function look_at_index()
  local refusal = bad_type(KEY.meta, 'hash') or bad_type(KEY.kinds, 'hash')
    or bad_type(KEY.changed, 'zset') or bad_type(KEY.later, 'zset') or bad_counts(KEY.meta)
  APART = refusal and true or false
end

-- look_at_home: set APART if the queue in which a task would wait is a key of another type.
local function look_at_home(task)
  APART = APART or bad_home(task) and true or false
end

-- leave_state: take a task out of the hash of its state, `taken` or `running`, and out of the
-- accounts to which it counts. undone: whether its take is undone.
local function leave_state(task, undone)
  if task.state == 'taken' then
    redis.call('HDEL', KEY.taken, task.id)
  end
  if task.run then
    redis.call('HDEL', KEY.running, task.id)
  end
  if task.counts then
    counting().leave_accounts(task.counts, {task.id}, undone)
    task.counts = nil
  end
end

-- note_attempt: write into the line how often the task was taken, and whether a run began. The line
-- says `redelivered` if a run of the same message had begun.
local function note_attempt(task)
  local line = task.line
  local takes = task.attempt and string.match(task.attempt, '^%d+')
  if takes and #takes < 10 then
    line.takes = tonumber(takes)
  end
  if task.started then
    set_option(line, 'ran', task.started)
    set_option(line, 'redelivered', not task.renewed and '1' or nil)
  end
end

-- note_ready: write into the line since when the task is ready. Only a task that has started is
-- ready anew: the delay of any other task goes on.
local function note_ready(task, due, put_off)
  local line = task.line
  if put_off and due then
    set_option(line, 'since', line.ready)
  end
  if due or task.started then
    line.ready = due or now_ms()
  end
  if not due then
    come_due(line)
  end
end

-- to_wait: let a task wait again, at its place in the order of its kind.
-- due: nil, or the time (ms) until which the task waits in `later`
-- put_off: whether the run of the task could not begin: the task stays ready since before
-- A successor that the task's attempt submitted is removed: otherwise the success of a later run
-- would start the successor. A successor that another process published stays.
local function to_wait(task, due, put_off)
  local line = task.line
  leave_state(task)
  note_attempt(task)
  note_ready(task, due, put_off)
  if task.extra.next and not others_published(task.extra.next) then
    redis.call('HDEL', KEY.extra .. task.id, 'next', 'next_message')
    task.extra.next = nil
  end
  put_line(task)
  if not due then
    enter(line.kind, task.id, line.order)
  elseif not APART then
    redis.call('ZADD', KEY.later, due, task.id)
  end
  task.state = 'pending'
  task.attempt = nil
  task.run = nil
  task.place = nil
  task.started = nil
end

-- write_end: move the record of a task to `ended`.
local function write_end(task, state, now, why)
  local line = task.line and line_text(task.line) or task.raw or ''
  local text = table.concat({state .. ' ' .. now, line, task.run or '', why}, '\n')
  redis.call('HSET', KEY.ended, task.id, text)
  redis.call('HDEL', KEY.tasks, task.id)
  redis.call('HDEL', KEY.messages, task.id)
end

-- end_task: end a task that is in no kind's queue. is_unseen: whether no worker saw the end of the
-- task; then its message is kept for the process that tells the result backend.
local function end_task(task, state, now, why, retention_s, is_unseen)
  local key = KEY.extra .. task.id
  local message = is_unseen and task.line and redis.call('HGET', KEY.messages, task.id)
  if message then
    put_extra(task, 'message', message)
  end
  write_end(task, state, now, why)
  leave_state(task)
  if task.line and task.line.mark == '+' then
    redis.call('HDEL', key, 'cancel', 'next', 'next_message')
    redis.call('EXPIRE', key, retention_s)
  elseif not task.line then
    redis.call('DEL', key)
  end
  task.state = state
  task.attempt = nil
  task.run = nil
end

-- end_unseen: end a task without a run: put its result into the outbox, and add an event.
local function end_unseen(task, state, now, why, retention_s)
  local attempt = task.attempt
  end_task(task, state, now, why, retention_s, true)
  to_outbox(task.id, state, why)
  local is_expired = why == 'expired'
  note_task(task, is_expired and why or state, not is_expired and why or nil, attempt, task.place)
end

-- bad_queues: return the error reply if a queue in which one of the tasks waits is damaged, or nil.
local function bad_queues(records)
  local refusal
  for _, task in pairs(records) do
    if task.state == 'pending' then
      refusal = refusal or bad_home(task)
    end
  end
  return refusal
end

-- write_waiting: write what waits now and what accounts hold; wake a scheduler if it may take more.
local function write_waiting(channel)
  if write_changes(KEY.meta, KEY.kinds, KEY.changed) then
    wake(channel, KEY.meta)
  end
end
