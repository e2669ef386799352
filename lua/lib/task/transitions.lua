-- Let tasks wait again and end them. Scripts that call these have, beside the keys of lib/task/record.lua, messages and pending:.
--- @include call/clock
--- @include cluster/events
--- @include kind/index
--- @include task/successor
--- @include task/outbox
--- @include task/record
--- @include cluster/wake
local DAMAGED = 'its record is damaged'

-- bad_home: look at the queue in which a task would wait; return the error reply for a key of another type, or nil.
local function bad_home(task) return task.line and bad_kind(KEY.pending, task.line.kind) end
-- look_at_index: find out whether the index of waiting tasks is damaged. Calls of runs must work all the same.
local function look_at_index()
  local bad = bad_type(KEY.meta, 'hash') or bad_type(KEY.kinds, 'hash') or bad_type(KEY.changed, 'zset')
  APART = (bad or bad_type(KEY.later, 'zset') or bad_counts(KEY.meta)) and true or false
end

-- look_at_home: look at the queue in which a task would wait; of another type it is damage of the index.
local function look_at_home(task) APART = APART or bad_home(task) and true or false end

-- unhold: take a task from the index of its state.
local function unhold(task)
  if task.state == 'taken' then redis.call('HDEL', KEY.taken, task.id) end
  if task.run then redis.call('HDEL', KEY.running, task.id) end
end

-- undo_take: let a taken task wait as if it had not been taken: its line, its place in the order and its rare fields stay.
local function undo_take(task)
  unhold(task)
  enter(task.line.kind, task.id, task.line.order)
  task.state, task.attempt = 'pending', nil
end

-- count_undone: count takes that were undone. A number that is damaged begins again beyond any that was counted: so does one
-- that was negative, or that has more digits than `take` writes into attempts.
local function count_undone(more)
  local undone = more > 0 and redis.pcall('HINCRBY', KEY.meta, 'undone', more)
  if undone and (type(undone) == 'table' or undone < more or undone >= 1e15) then
    redis.call('HSET', KEY.meta, 'undone', now_ms())
  end
end

-- come_due: let a task whose run was put off before it began be ready since it was first; return whether it is one.
local function come_due(line)
  local since = option(line, 'since')
  if since and #since < 16 and string.find(since, '^%d+$') then
    line.ready = since
  end
  if since then
    set_option(line, 'since', nil)
  end
  return since ~= nil
end

-- to_wait: let a task wait, at its place in the order of its kind; if `due` (ms) is given, not before. Only a task that has
-- started is ready anew: the delay of any other goes on. put_off: so does that of a task that has to wait until it is due because
-- its run could not begin. A successor that its attempt submitted is lost with the run: otherwise a later run's success would
-- start it. A successor of others stays. The line says `redelivered` if a run of the same message had begun.
local function to_wait(task, due, put_off)
  local line = task.line
  unhold(task)
  local takes = task.attempt and string.match(task.attempt, '^%d+')
  if takes and #takes < 10 then line.takes = tonumber(takes) end
  if task.started then
    set_option(line, 'ran', task.started)
    set_option(line, 'redelivered', not task.renewed and '1' or nil)
  end
  if put_off and due then
    set_option(line, 'since', line.ready)
  end
  if due or task.started then
    line.ready = due or now_ms()
  end
  if not due then
    come_due(line)
  end
  if task.extra.next and not is_others(task.extra.next) then
    redis.call('HDEL', KEY.extra .. task.id, 'next', 'next_message')
    task.extra.next = nil
  end
  put_line(task)
  if not due then enter(line.kind, task.id, line.order) elseif not APART then redis.call('ZADD', KEY.later, due, task.id) end
  task.state, task.attempt, task.run, task.place, task.started = 'pending', nil, nil, nil, nil
end

-- write_end: move the record of a task to `ended`.
local function write_end(task, state, now, why)
  local line = task.line and line_text(task.line) or task.raw or ''
  redis.call('HSET', KEY.ended, task.id, table.concat({state .. ' ' .. now, line, task.run or '', why}, '\n'))
  redis.call('HDEL', KEY.tasks, task.id)
  redis.call('HDEL', KEY.messages, task.id)
end

-- to_final: end a task that is in no kind's queue. `told`: no worker saw its end, so its message is kept for the process that
-- tells the result backend.
local function to_final(task, state, now, why, retention_s, told)
  local message = told and task.line and redis.call('HGET', KEY.messages, task.id)
  if message then put_extra(task, 'message', message) end
  write_end(task, state, now, why)
  unhold(task)
  if task.line and task.line.mark == '+' then
    redis.call('HDEL', KEY.extra .. task.id, 'cancel', 'next', 'next_message')
    redis.call('EXPIRE', KEY.extra .. task.id, retention_s)
  elseif not task.line then
    redis.call('DEL', KEY.extra .. task.id)
  end
  task.state, task.attempt, task.run = state, nil, nil
end

-- end_unseen: end a task where no worker sees it.
local function end_unseen(task, state, now, why, retention_s)
  local attempt = task.attempt
  to_final(task, state, now, why, retention_s, true)
  to_outbox(task.id, state, why)
  note_task(task, why == 'expired' and why or state, why ~= 'expired' and why, attempt, task.place)
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
