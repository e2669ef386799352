-- Tasks that a take meets and does not give to its scheduler: tasks that come due, expired tasks, and damaged tasks.
--- @include task/transitions
--- @include task/line_check

-- is_dead: return whether a task is in the list of dead ones.
local function is_dead(id) return redis.call('ZSCORE', KEY.dead, id) end

-- find_due: return the ids of `most` delayed tasks that have come due, the line of each (false without one), and an error reply
-- or nil. Those with a damaged line are added to `gone`.
local function find_due(now, most, gone)
  local ids, bad = redis.call('ZRANGEBYSCORE', KEY.later, '-inf', now, 'LIMIT', 0, most), nil
  local texts, lines = read_fields(KEY.tasks, ids), {}
  for i, id in ipairs(ids) do
    local line = parse_line(texts[id])
    if texts[id] and not line then gone[#gone + 1], gone[#gone + 2] = 0, id end
    bad = bad or line and bad_kind(KEY.pending, line.kind) or nil
    lines[i] = line or false
  end
  return ids, lines, bad
end

-- to_be_turned: return the records of the tasks of {row, id, ...}, by id; or nil and the error reply.
local function to_be_turned(gone, retention_s)
  local bad, ids = bad_retention(retention_s) or bad_records() or bad_type(KEY.outbox, 'list'), {}
  if bad then return nil, bad end
  for i = 2, #gone, 2 do ids[#ids + 1] = gone[i] end
  local found = load_tasks(ids)
  for _, task in pairs(found) do bad = bad or task.line and bad_kind(KEY.pending, task.line.kind) or nil end
  return found, bad
end

-- enter_due: let tasks wait that have come due; return {id, line, ...} of those whose line is another now.
local function enter_due(ids, lines)
  local written = {}
  for i, id in ipairs(ids) do
    local line = lines[i]
    if line then
      enter(line.kind, id, line.order)
      if come_due(line) then
        written[#written + 1], written[#written + 2] = id, line_text(line)
      end
    end
  end
  return written
end

-- turn_one: end a task that has expired or is damaged, or put it where it belongs; return why, if it is damaged.
local function turn_one(task, now, retention_s)
  if not task or task.state ~= 'pending' then return nil end -- it is in no queue any more
  local why = flaw(task.line)
  if why then
    why = DAMAGED .. ': ' .. why
    end_unseen(task, 'failed', now, why, retention_s)
    return why
  end
  if is_past(option(task.line, 'expires'), now) then
    end_unseen(task, 'cancelled', now, 'expired', retention_s)
  else
    enter(task.line.kind, task.id, task.line.order)
  end
end

-- turn_away: turn away all tasks of {row, id, ...}, and add those that are damaged to what the reply tells.
local function turn_away(gone, turned, given, now, retention_s)
  for i = 1, #gone, 2 do
    local why = turn_one(turned[gone[i + 1]], now, retention_s)
    for _, word in ipairs(why and {gone[i], gone[i + 1], '', why} or {}) do given[#given + 1] = word end
  end
  write_outbox(KEY.outbox)
end
