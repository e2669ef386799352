-- give_back: return taken tasks to their kinds, because their scheduler gives them back, or was
-- lost.
-- KEYS: meta kinds changed tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: accounts policy holders:
-- ARGV: count channel scheduler (id attempt how why)*
--   attempt: '' for any attempt of that scheduler (the scheduler was lost)
--   how: 'undo' if no claim of this attempt can have won: the take is undone, and the line stays as
--     it was; '' counts the take
-- RETURNS: a word per task: pending (the task went back), stale (another attempt has the task)
-- ERRORS: PSARGS
-- INVARIANT: only a task that is taken, by this scheduler and attempt, goes back; a pending task
--   cannot start, which fences the attempt. `undone` of meta counts the takes that were undone;
--   `take` writes the count into attempts, so that none is given out twice.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include task/transitions

-- load_records: return nil and {id -> record} of the tasks of all rows; or the error reply for a
-- queue of another type.
local function load_records()
  local ids = {}
  for i, row in rows() do
    ids[i] = row.id
  end
  local records = load_tasks(ids)
  for _, task in pairs(records) do
    local refusal = bad_home(task)
    if refusal then
      return refusal
    end
  end
  return nil, records
end

-- is_taken: return whether a task is taken by the scheduler of this call, with this attempt.
local function is_taken(task, attempt)
  local pattern = '^%d+@%d+%.(.*)%.%w+$'
  local owner = task and task.state == 'taken' and string.match(task.attempt, pattern)
  local is_owned = task and task.line and owner == args.scheduler
  return is_owned and (attempt == '' or attempt == task.attempt)
end

-- undo_take: let a taken task wait as if it had not been taken: its line, its place in the order
-- and its rare fields stay.
local function undo_take(task)
  leave_state(task, true)
  enter(task.line.kind, task.id, task.line.order)
  task.state = 'pending'
  task.attempt = nil
end

-- count_undone: add to `undone` of meta, the number of takes that were undone. A damaged number (it
-- is negative, or has more digits than `take` writes into attempts) begins again beyond each number
-- that was counted.
local function count_undone(takes)
  local undone = takes > 0 and redis.pcall('HINCRBY', meta, 'undone', takes)
  if undone and (type(undone) == 'table' or undone < takes or undone >= 1e15) then
    redis.call('HSET', meta, 'undone', now_ms())
  end
end

-- return_task: let a taken task wait, and write why.
local function return_task(task, why)
  if why ~= '' then
    put_extra(task, 'why', why)
  end
  to_wait(task)
end

local refusal, records = load_records()
if refusal then
  return refusal
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', taken, '')
local words = {}
local undone = 0
for i, row in rows() do
  local task = records[row.id]
  words[i] = 'pending'
  if not is_taken(task, row.attempt) then
    words[i] = 'stale'
  elseif row.how == 'undo' and row.attempt ~= '' then
    undo_take(task)
    undone = undone + 1
  else
    return_task(task, row.why)
  end
end
count_undone(undone)
write_changes(meta, kinds, changed)
if HAS_ROOM then -- not for the tasks of this call: their scheduler has found no seat
  wake(args.channel, meta)
end
return words
