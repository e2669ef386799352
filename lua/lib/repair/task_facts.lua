-- Read all that the keys of a shard say of one task, and judge whether it agrees.
--- @include repair/entries
--- @include repair/task_indexes
--- @include task/line_check
--- @include repair/recount
--- @include repair/remake

-- add_new_line: give a task that has a message and has lost its line a new line, if its order in
-- the queue of a kind, or its run, tells what the task is.
local function add_new_line(task, kind, now)
  local can_wait = not task.raw and kind ~= ''
  local order = can_wait and redis.call('ZSCORE', KEY.pending .. kind, task.id)
  local run = task.listed_run or task.leased_run
  local line = (order or run) and remake_line(task.id, kind, order, run, now)
  if line then
    task.line = line
    task.raw = line_text(line)
    task.is_remade = true
    if task.state == 'gone' then
      task.state = 'pending'
    end
  end
end

-- find_task: return the record of a task with
--   owner       the task's entry of `taken`
--   leased_run  the argument `run`, which a lease tells, if `run` is a run of this task
--   listed_run  the task's entry of `running`, if the entry is a run of this task
--   message     whether the task has a message
--   is_remade   whether the task had lost its line, and this call made a new line
local function find_task(id, kind, run, now)
  local task = load_tasks({id})[id] or {id = id, state = 'gone', extra = {}}
  task.owner = redis.call('HGET', KEY.taken, id)
  task.run = redis.call('HGET', KEY.running, id) or nil
  task.message = redis.call('HEXISTS', KEY.messages, id) == 1
  task.leased_run = run ~= '' and is_run(run, id) and run or nil
  task.listed_run = task.run and is_run(task.run, id) and task.run or nil
  if task.message and not task.text and not task.line then
    add_new_line(task, kind, now)
  end
  return task
end

-- add_indexes: add where a task is listed, and what its record of an ended task says.
-- home: the queue of its kind; queue_seen: the queue in which it was seen to wait.
local function add_indexes(task, home, queue_seen, now)
  local id = task.id
  local line = task.line
  task.order = redis.call('ZSCORE', home.pending, id)
  task.due = redis.call('ZSCORE', KEY.later, id)
  task.order_elsewhere = queue_seen ~= home and redis.call('ZSCORE', queue_seen.pending, id)
  task.died = redis.call('ZSCORE', KEY.dead, id)
  task.has_ended = task.text or not (task.raw or task.owner or task.run or task.message)
  task.is_double = task.raw and not task.text and ended_texts({id})[id]
  task.is_late = line and not task.run and not task.died
    and is_late(line, redis.call('ZSCORE', KEY.expires, id), tonumber(now))
  task.is_readable = is_end(task.text or '')
  task.is_well_ended = not task.text or task.is_readable and count_ends({id})[id] == 1
end

-- judge_run: add which run a task keeps (kept_run), whether its owner has the attempt of the line
-- (is_taken), and what is broken beyond repair (flaw).
local function judge_run(task)
  local line = task.line
  local leased = task.leased_run
  local listed = task.listed_run
  local is_waiting_or_taken = task.owner or task.order or task.due or task.died
  local is_same_place = leased and listed and place_of(leased) == place_of(listed)
  local may_be_lost = leased and not is_same_place and (task.run or not is_waiting_or_taken)
  if line and may_be_lost and has_attempt_of(leased, line) then
    task.kept_run = leased
  elseif line and listed and (is_same_place or has_attempt_of(listed, line)) then
    task.kept_run = listed
  end
  task.is_taken = line and task.owner and has_attempt_of('- ' .. task.owner .. ' ', line)
  if not task.has_ended then
    task.flaw = flaw(line) or not task.message and not task.kept_run and 'message'
  end
end

-- agree: return whether everything that the keys say of a task agrees.
local function agree(task)
  local run = task.run
  local is_listed = task.order or task.order_elsewhere or task.due or task.died or task.owner or run
  if task.has_ended then
    return task.is_well_ended and not is_listed and not task.message
  end
  if task.flaw or task.is_remade or task.is_double or task.is_late or not task.message then
    return false
  end
  if task.order_elsewhere or task.owner and not task.is_taken then
    return false
  end
  if run and not (task.kept_run == run and has_attempt_of(run, task.line)) then
    return false
  end
  if task.kept_run and not run or task.state == 'dead' and not task.died then
    return false
  end
  if (run or task.owner) and has_accounts(task.line.kind)
      and not is_counted(task.id, task.line.kind) then
    return false
  end
  return fits_index(task.line, task.order, task.due, task.owner, run, task.died)
end
