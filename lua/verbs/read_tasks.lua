-- read_tasks: return the records of tasks, in one round trip. It writes nothing.
-- KEYS: kinds tasks messages taken running dead ended ended_1 ended_2 extra:
-- READS: kinds tasks messages taken running dead ended ended_1 ended_2
-- ARGV: count extras id*
--   extras: '1' to read the rare fields as well
-- RETURNS: now_ms, then seven values per task: its state (gone if it has no record), its line, its attempt, its entry of
--   `running`, 'STATE MS' and why of its end, the line of its kind if it is pending, and (field, value)* of extra:ID without
--   messages
-- ERRORS: PSARGS
-- INVARIANT: a record is of one moment.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count)
--- @include call/clock
--- @include task/record
local ids, reply = {}, {now_ms()}
for i, row in rows() do ids[i] = row.id end
local found = load_tasks(ids)
for _, id in ipairs(ids) do
  local task, words = found[id], {'gone', '', '', '', '', '', {}}
  if task and task.text then
    local stamp, line, run, why = string.match(task.text, '^(%l+ %d+)\n([^\n]*)\n([^\n]*)\n(.*)$')
    words = {task.state, line or '', '', run or '', stamp and stamp .. ' ' .. why or task.text, '', {}}
    if args.extras == '1' and string.byte(line or '') == 43 then
      words[7] = flat({history = redis.call('HGET', KEY.extra .. id, 'history') or nil})
    end
  elseif task then
    local extra, line = task.extra, task.line
    local stamp = task.state == 'dead' and 'dead ' .. (extra.ended_ms or '') .. ' ' .. (extra.why or '') or ''
    local its = task.state == 'pending' and line and redis.call('HGET', kinds, line.kind) or ''
    words = {task.state, task.raw or '', task.attempt or '', task.run or extra.run or '', stamp, its, flat(extra)}
  end
  for _, word in ipairs(words) do reply[#reply + 1] = word end
end
return reply
