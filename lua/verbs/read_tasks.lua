-- read_tasks: return the records of tasks, in one round trip. Writes nothing.
-- KEYS: kinds tasks messages taken running dead ended ended_1 ended_2 extra:
-- READS: kinds tasks messages taken running dead ended ended_1 ended_2
-- ARGV: count extras id*
--   extras: '1' to read the rare fields as well
-- RETURNS: now_ms, then seven values per task: the state (gone for an id without a record), the
--   line, the attempt, the entry of `running`, 'STATE MS' and why of the end, the line of the kind
--   of a pending task, and (field, value)* of extra:ID without messages
-- ERRORS: PSARGS
-- INVARIANT: all values are of one moment.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count)
--- @include call/clock
--- @include task/record

-- describe_ended: return the seven values of a task that has ended and is not dead.
local function describe_ended(task)
  local stamp, line, run, why = string.match(task.text, '^(%l+ %d+)\n([^\n]*)\n([^\n]*)\n(.*)$')
  local rare_fields = {}
  if args.extras == '1' and string.byte(line or '') == 43 then -- '+'
    local history = redis.call('HGET', KEY.extra .. task.id, 'history')
    rare_fields = flat({history = history or nil})
  end
  local ending = stamp and stamp .. ' ' .. why or task.text
  return {task.state, line or '', '', run or '', ending, '', rare_fields}
end

-- describe_live: return the seven values of a task that has not ended, or is dead.
local function describe_live(task)
  local extra = task.extra
  local ending = ''
  local kind_line = ''
  if task.state == 'dead' then
    ending = 'dead ' .. (extra.ended_ms or '') .. ' ' .. (extra.why or '')
  elseif task.state == 'pending' and task.line then
    kind_line = redis.call('HGET', kinds, task.line.kind) or ''
  end
  local run = task.run or extra.run or ''
  return {task.state, task.raw or '', task.attempt or '', run, ending, kind_line, flat(extra)}
end

-- describe_task: return the seven values of a task; `task` is nil for an id without a record.
local function describe_task(task)
  if not task then
    return {'gone', '', '', '', '', '', {}}
  end
  if task.text then
    return describe_ended(task)
  end
  return describe_live(task)
end

local reply = {now_ms()}
local ids = {}
for i, row in rows() do
  ids[i] = row.id
end
local records = load_tasks(ids)
for _, id in ipairs(ids) do
  for _, value in ipairs(describe_task(records[id])) do
    reply[#reply + 1] = value
  end
end
return reply
