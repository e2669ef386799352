-- give_back: return taken tasks to their kinds, because their scheduler gives them back or was lost.
-- KEYS: meta kinds changed tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ARGV: count scheduler (id attempt how why)*
--   attempt: '' for any attempt of that scheduler (it was lost)
--   how: 'undo' if no claim of this attempt can have won: the take is undone, and the line stays as it was; '' counts the take
-- RETURNS: a word per task: pending, stale
-- ERRORS: PSARGS
-- INVARIANT: only a task that is taken, by this scheduler and attempt, goes back; a pending task cannot start, which fences it.
--   `undone` of meta counts the takes that were undone; `take` writes it into attempts, so that none is given out twice.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include task/transitions
local ids, bad, replies = {}, nil, {}
local undone = 0
for i, row in rows() do ids[i] = row.id end
local found = load_tasks(ids)
for _, task in pairs(found) do bad = bad or bad_home(task) end
if bad then return bad end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
for i, row in rows() do
  local task, why = found[row.id], row.why
  local owner = task and task.state == 'taken' and string.match(task.attempt, '^%d+@%d+%.(.*)%.%w+$')
  local mine = task and task.line and owner == args.scheduler
  if mine and (row.attempt == '' or row.attempt == task.attempt) then
    if row.how == 'undo' and row.attempt ~= '' then
      undo_take(task)
      undone = undone + 1
    else
      if why ~= '' then
        put_extra(task, 'why', why)
      end
      to_wait(task)
    end
    replies[i] = 'pending'
  else
    replies[i] = 'stale'
  end
end
count_undone(undone)
write_kinds(meta, kinds, changed) -- it wakes nobody: its scheduler has seen that there is no seat
return replies
