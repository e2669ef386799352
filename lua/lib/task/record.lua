-- Read the record of a task. The hash that has the task tells its state. A script that calls these functions has the keys tasks,
-- taken, running, dead, ended, ended_1 and ended_2, and the prefix extra:.
--- @include call/batch
--- @include task/line
local FINAL = {succeeded = true, failed = true, cancelled = true, dead = true}
local RARE = {'why', 'history', 'cancel', 'next', 'ended_ms', 'run'} -- fields of extra:ID; also next_message and message

-- ended_texts: return {id -> text} of tasks that have ended. The text has a line for each of 'STATE MS', the task's line, its
-- last entry of `running`, and why it ended.
local function ended_texts(ids)
  local found = read_fields(KEY.ended_2, ids)
  for id, text in pairs(read_fields(KEY.ended_1, ids)) do found[id] = text end
  for id, text in pairs(read_fields(KEY.ended, ids)) do found[id] = text end
  return found
end

-- look_at: complete the record of a task that has not ended: state, line (nil if it is damaged), attempt, the place and the
-- start (ms) of its run, and its rare fields in `extra`.
local function look_at(task)
  local line = parse_line(task.raw)
  task.line, task.extra = line, {}
  if line and line.mark == '+' then
    local key = KEY.extra .. task.id
    local rare = redis.pcall('HMGET', key, unpack(RARE))
    if rare.err then error(bad_type(key, 'hash').err, 0) end -- names the key, which is no argument
    for i, value in ipairs(rare) do task.extra[RARE[i]] = value or nil end
  end
  if task.run then
    local place, started = run_parts(task.run)
    task.place, task.started, task.attempt = place or task.run, started, attempt_of(task.run)
    task.state = started and 'running' or 'placed'
  elseif task.attempt then
    task.state = 'taken'
  else
    task.state = (task.extra.ended_ms or redis.call('ZSCORE', KEY.dead, task.id)) and 'dead' or 'pending'
  end
  return task
end

-- load_tasks: return {id -> record} of the tasks that there are; an ended task has its state and its text only.
local function load_tasks(ids)
  local lines, owners, runs = read_fields(KEY.tasks, ids), read_fields(KEY.taken, ids), read_fields(KEY.running, ids)
  local over, found = ended_texts(ids), {}
  for _, id in ipairs(ids) do
    local text = over[id]
    if not found[id] and (lines[id] or not text and (owners[id] or runs[id])) then
      found[id] = look_at({id = id, raw = lines[id], attempt = owners[id], run = runs[id]})
    elseif not found[id] and text then
      local state = string.match(text, '^%l+')
      found[id] = {id = id, state = FINAL[state] and state or 'failed', text = text}
    end
  end
  return found
end

-- bad_records: return the error reply for a key of another type that only some calls need, or nil.
local function bad_records()
  local bad
  for _, name in ipairs({'running', 'taken', 'messages', 'ended', 'ended_1', 'ended_2'}) do
    bad = bad or bad_type(KEY[name], 'hash')
  end
  return bad or bad_type(KEY.dead, 'zset')
end

-- put_extra: write rare fields of a task. The first ones begin anew: those of an earlier life may not have expired yet.
local function put_extra(task, ...)
  if task.line.mark ~= '+' then redis.call('DEL', KEY.extra .. task.id) end
  redis.call('HSET', KEY.extra .. task.id, ...)
  task.line.mark = '+'
end

-- put_line: write the line of a task.
local function put_line(task) redis.call('HSET', KEY.tasks, task.id, line_text(task.line)) end
