-- Tasks that a take meets and does not give to its scheduler: tasks that come due, expired tasks,
-- and damaged tasks. `not_taken` is {row, id, ...}; the row of a task that was delayed is 0.
--- @include task/transitions
--- @include task/line_check
local DUE_IDS = {} -- ids of the delayed tasks that have come due
local DUE_LINES = {} -- the line of each task of DUE_IDS, false for a missing or damaged line
local RECORDS = {} -- id -> record, of the tasks that were not taken

-- is_dead: return whether a task is in the list of the dead.
local function is_dead(id)
  return redis.call('ZSCORE', KEY.dead, id)
end

-- find_due: read `limit` delayed tasks that have come due. Add those with a damaged line to
-- `not_taken`. Return an error reply or nil.
local function find_due(limit, not_taken)
  local refusal
  DUE_IDS = redis.call('ZRANGEBYSCORE', KEY.later, '-inf', now_ms(), 'LIMIT', 0, limit)
  local texts = read_fields(KEY.tasks, DUE_IDS)
  for i, id in ipairs(DUE_IDS) do
    local line = parse_line(texts[id])
    if texts[id] and not line then
      not_taken[#not_taken + 1] = 0
      not_taken[#not_taken + 1] = id
    end
    refusal = refusal or line and bad_kind(KEY.pending, line.kind) or nil
    DUE_LINES[i] = line or false
  end
  return refusal
end

-- enter_due: let the tasks of DUE_IDS wait. Return {id, line, ...} of the tasks whose line changes.
local function enter_due()
  local changed_lines = {}
  for i, id in ipairs(DUE_IDS) do
    local line = DUE_LINES[i]
    if line then
      enter(line.kind, id, line.order)
      if come_due(line) then
        changed_lines[#changed_lines + 1] = id
        changed_lines[#changed_lines + 1] = line_text(line)
      end
    end
  end
  return changed_lines
end

-- write_due: take the tasks of DUE_IDS out of `later`, and write the lines that enter_due returned.
local function write_due(lines)
  write_all('ZREM', KEY.later, DUE_IDS)
  write_all('HSET', KEY.tasks, lines)
end

-- load_not_taken: read the records of tasks that were not taken. Return an error reply or nil.
local function load_not_taken(not_taken, retention_s)
  local refusal = bad_retention(retention_s) or bad_records() or bad_type(KEY.outbox, 'list')
  if refusal then
    return refusal
  end
  local ids = {}
  for i = 2, #not_taken, 2 do
    ids[#ids + 1] = not_taken[i]
  end
  RECORDS = load_tasks(ids)
  for _, task in pairs(RECORDS) do
    refusal = refusal or task.line and bad_kind(KEY.pending, task.line.kind) or nil
  end
  return refusal
end

-- end_or_return: end a task that has expired or is damaged, and put any other task back where it
-- waits. Return why the task ended, if it is damaged.
local function end_or_return(task, retention_s)
  if not task or task.state ~= 'pending' then -- the task is in no queue any more
    return nil
  end
  local damage = flaw(task.line)
  if damage then
    local why = DAMAGED .. ': ' .. damage
    end_unseen(task, 'failed', now_ms(), why, retention_s)
    return why
  end
  if is_past(option(task.line, 'expires'), now_ms()) then
    end_unseen(task, 'cancelled', now_ms(), 'expired', retention_s)
  else
    enter(task.line.kind, task.id, task.line.order)
  end
end

-- end_not_taken: end the tasks that were not taken, or put them back. Add to the tasks of the reply
-- those that are damaged, with '' in the place of the attempt.
local function end_not_taken(not_taken, given, retention_s)
  for i = 1, #not_taken, 2 do
    local id = not_taken[i + 1]
    local why = end_or_return(RECORDS[id], retention_s)
    for _, word in ipairs(why and {not_taken[i], id, '', why} or {}) do
      given[#given + 1] = word
    end
  end
  write_outbox(KEY.outbox)
end
