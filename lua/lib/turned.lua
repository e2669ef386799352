-- Tasks that a take meets and does not give: expired ones, and those that only a hand can have made what they are.
--- @include queue
--- @include record

-- to_be_turned: return what is known of the tasks of {row, id, ...}, by id; or nil and the error reply.
local function to_be_turned(gone, retention_s)
  local bad, ids = bad_retention(retention_s) or bad_records(), {}
  if bad then return nil, bad end
  for i = 2, #gone, 2 do ids[#ids + 1] = gone[i] end
  local found = load_tasks(ids)
  for _, task in pairs(found) do bad = bad or task.line and bad_kind(KEY.pending, task.line.kind) or nil end
  return found, bad
end

-- turn_away: end a task that has expired or is damaged, or put it where it belongs; return why, if it is damaged.
local function turn_away(task, now, retention_s)
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
