-- confirm: mark a task whose claim was committed as placed.
-- KEYS: taken running
-- READS: taken running
-- ARGV: count (id attempt text)*
--   text: the lease, '1@17... p0 n1/3 inc=1 since=MS' behind the id
-- RETURNS: (row, word)* of tasks that were not marked: yours (the task has that place already, or
--   runs there), stale (the task is taken by another attempt, or by none)
-- ERRORS: PSARGS
-- INVARIANT: only a task that is still taken, by this attempt, gets a place.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count)
--- @include task/line

-- read_states: return of each row the id, the attempt that has taken the task, and the task's run;
-- false for a task that is not taken, or has no run.
local function read_states()
  local ids = {}
  for i, row in rows() do
    ids[i] = row.id
  end
  local owners = redis.call('HMGET', taken, unpack(ids))
  local runs = redis.call('HMGET', running, unpack(ids))
  return ids, owners, runs
end

-- judge_rows: return the ids of the tasks that get a place, {id, place, ...} of these tasks, and
-- the reply for the other rows.
local function judge_rows(ids, owners, runs)
  local placed = {}
  local new_runs = {}
  local place_of = {} -- id -> the place that this call gives
  local reply = {}
  for i, row in rows() do
    local id = ids[i]
    local text = row.text
    local run = place_of[id] or runs[i]
    if not place_of[id] and owners[i] == row.attempt then
      placed[#placed + 1] = id
      new_runs[#new_runs + 1] = id
      new_runs[#new_runs + 1] = text
      place_of[id] = text
    else
      local is_same = run and (run == text or is_run_at(run, text))
      reply[#reply + 1] = i
      reply[#reply + 1] = is_same and 'yours' or 'stale'
    end
  end
  return placed, new_runs, reply
end

if count == 0 then
  return {}
end
local ids, owners, runs = read_states()
local placed, new_runs, reply = judge_rows(ids, owners, runs)
if #placed > 0 then
  redis.call('HDEL', taken, unpack(placed)) -- HDEL comes first, see docs/decisions/0015
  redis.call('HSET', running, unpack(new_runs))
end
return reply
