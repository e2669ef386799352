-- Read the record of a task. The hash that has the task tells its state. A script that calls these
-- functions has the keys tasks, taken, running, dead, ended, ended_1 and ended_2, and the prefix
-- extra:.
--- @include call/batch
--- @include task/line
local FINAL = {succeeded = true, failed = true, cancelled = true, dead = true}
-- RARE: the rare fields, which most tasks never have, of the hash extra:ID. A record has them in
-- `extra`. The hash may also have next_message and message, which are large.
local RARE = {'why', 'history', 'cancel', 'next', 'ended_ms', 'run'}

-- ended_texts: return {id -> text} of tasks that have ended. The text has a line for each of
-- 'STATE MS', the task's line, its last entry of `running`, and why it ended.
local function ended_texts(ids)
  local texts = read_fields(KEY.ended_2, ids)
  for id, text in pairs(read_fields(KEY.ended_1, ids)) do
    texts[id] = text
  end
  for id, text in pairs(read_fields(KEY.ended, ids)) do
    texts[id] = text
  end
  return texts
end

-- load_extra: return the rare fields of a task as a table.
local function load_extra(id)
  local key = KEY.extra .. id
  local values = redis.pcall('HMGET', key, unpack(RARE))
  if values.err then
    error(bad_type(key, 'hash').err, 0) -- the error names the key, which is not among KEYS
  end
  local extra = {}
  for i, value in ipairs(values) do
    extra[RARE[i]] = value or nil
  end
  return extra
end

-- complete_record: add fields to the record of a task that has not ended: its state, its line (nil
-- for a damaged line), its attempt, the place and the start (ms) of its run, its rare fields, and
-- the kind as which the task counts to accounts, nil or false if it does not.
local function complete_record(task)
  local line = parse_line(task.raw)
  task.line = line
  task.extra = line and line.mark == '+' and load_extra(task.id) or {}
  if task.run then
    local place, started = run_parts(task.run)
    task.place = place or task.run
    task.started = started
    task.attempt = attempt_of(task.run)
    task.state = started and 'running' or 'placed'
  elseif task.attempt then
    task.state = 'taken'
  else
    local is_dead_task = task.extra.ended_ms or redis.call('ZSCORE', KEY.dead, task.id)
    task.state = is_dead_task and 'dead' or 'pending'
  end
  task.counts = (task.run or task.attempt) and line and has_accounts(line.kind) and line.kind
  return task
end

-- ended_record: return the record of a task that has ended, with the fields id, state and text.
local function ended_record(id, text)
  local state = string.match(text, '^%l+')
  return {id = id, state = FINAL[state] and state or 'failed', text = text}
end

-- load_tasks: return {id -> record} of the tasks that exist.
local function load_tasks(ids)
  local lines = read_fields(KEY.tasks, ids)
  local owners = read_fields(KEY.taken, ids)
  local runs = read_fields(KEY.running, ids)
  local texts = ended_texts(ids)
  local records = {}
  for _, id in ipairs(ids) do
    local text = texts[id]
    local is_live = lines[id] or not text and (owners[id] or runs[id])
    if not records[id] and is_live then
      local task = {id = id, raw = lines[id], attempt = owners[id], run = runs[id]}
      records[id] = complete_record(task)
    elseif not records[id] and text then
      records[id] = ended_record(id, text)
    end
  end
  return records
end

-- bad_records: return the error reply for a key of another type, or nil. Checks the keys that only
-- some calls read.
local function bad_records()
  for _, name in ipairs({'running', 'taken', 'messages', 'ended', 'ended_1', 'ended_2'}) do
    local refusal = bad_type(KEY[name], 'hash')
    if refusal then
      return refusal
    end
  end
  return bad_type(KEY.dead, 'zset')
end

-- put_extra: write rare fields of a task, given as name, value, ... Before the first rare field of
-- a task the function deletes extra:ID: the hash of an ended task with the same id may be there.
local function put_extra(task, ...)
  local key = KEY.extra .. task.id
  if task.line.mark ~= '+' then
    redis.call('DEL', key)
  end
  redis.call('HSET', key, ...)
  task.line.mark = '+'
end

-- put_line: write the line of a task.
local function put_line(task)
  redis.call('HSET', KEY.tasks, task.id, line_text(task.line))
end
