-- Read all that the keys of a shard say of one task, and judge whether it agrees.
--- @include repair/task_indexes
--- @include task/line_check
--- @include repair/remake

-- find_task: return the record of a task, with a line made anew if it has lost it: {remade = true}; and a message or none.
local function find_task(id, kind, asked, now)
  local task = load_tasks({id})[id] or {id = id, state = 'gone', extra = {}}
  task.owner, task.asked = redis.call('HGET', KEY.taken, id), asked ~= '' and is_run(asked, id) and asked or nil
  task.run, task.message = redis.call('HGET', KEY.running, id) or nil, redis.call('HEXISTS', KEY.messages, id) == 1
  task.placed = task.run and is_run(task.run, id) and task.run or nil
  if task.message and not task.text and not task.line then
    local pending = KEY.pending .. kind
    local order = not task.raw and kind ~= '' and redis.call('ZSCORE', pending, id)
    local remade = (order or task.placed or task.asked) and remake_line(id, kind, order, task.placed or task.asked, now)
    if remade then
      task.line, task.raw, task.remade = remade, line_text(remade), true
      if task.state == 'gone' then task.state = 'pending' end
    end
  end
  return task
end

-- add_indexes: add where a task is listed; home: the queue of its kind; seen: that in which it was seen to wait.
local function add_indexes(task, home, seen, now)
  local id, line = task.id, task.line
  task.order, task.due = redis.call('ZSCORE', home.pending, id), redis.call('ZSCORE', KEY.later, id)
  task.elsewhere, task.died = seen ~= home and redis.call('ZSCORE', seen.pending, id), redis.call('ZSCORE', KEY.dead, id)
  task.over = task.text or not (task.raw or task.owner or task.run or task.message)
  task.twice = task.raw and not task.text and ended_texts({id})[id]
  task.late = line and not task.run and not task.died and is_late(line, redis.call('ZSCORE', KEY.expires, id), tonumber(now))
  local state = string.match(task.text or '', '^(%l+) %d+\n[^\n]*\n[^\n]*\n')
  task.readable = FINAL[state or '']
  local ends, one = 0, {id}
  for _, text in ipairs({read_list(KEY.ended, one)[1], read_list(KEY.ended_1, one)[1], read_list(KEY.ended_2, one)[1]}) do
    if text then ends = ends + 1 end
  end
  task.well_ended = not task.text or task.readable and ends == 1
end

-- judge_run: say which run a task keeps, which of its attempts are its own, and what is broken beyond repair.
local function judge_run(task)
  local line, asked, placed = task.line, task.asked, task.placed
  local listed = task.owner or task.order or task.due or task.died
  local same = asked and placed and place_of(asked) == place_of(placed)
  if line and asked and not same and (task.run or not listed) and matches(asked, line) then
    task.kept = asked
  elseif line and placed and (same or matches(placed, line)) then
    task.kept = placed
  end
  task.taker = line and task.owner and matches('- ' .. task.owner .. ' ', line)
  task.broken = not task.over and (flaw(line) or not task.message and not task.kept and 'message')
end

-- agree: return whether everything that the keys say of a task agrees.
local function agree(task)
  local listed = task.order or task.elsewhere or task.due or task.died or task.owner or task.run
  if task.over then return task.well_ended and not listed and not task.message end
  if task.broken or task.remade or task.elsewhere or task.twice or task.late or not task.message then return false end
  if task.run and not (task.kept == task.run and matches(task.run, task.line)) or task.kept and not task.run then return false end
  return fits_index(task.line, task.order, task.due, task.owner, task.run, task.died) and (task.taker or not task.owner)
    and (task.died or task.state ~= 'dead')
end
