-- start: start the current attempt of a task, at most once and only where it was placed. The reply
-- has the message to run.
-- KEYS: taken running messages
-- ALSO: tasks dead ended ended_1 ended_2 extra:
-- READS: tasks messages taken running dead ended ended_1 ended_2
-- ARGV: count most (id attempt text)*
--   most: how many of these tasks may run now; text: the text of the doorbell, which is the lease
-- RETURNS: two values per task: 'ok', message; 'yours', message (the same place asks again);
--   'wait', '' (`most` others run, or come before it in the queue's order); or 'refused', state of
--   the task
-- ERRORS: PSARGS
-- INVARIANT: an attempt starts at most once; only from taken or placed; once `confirm` wrote a
--   place, only there.
-- ATOMICITY: each task by itself. A start also removes the task from `taken`, so no leader gives a
--   running task back.
-- COMPLEXITY: O(count)
--- @include call/clock
--- @include task/record
--- @include task/start_order

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

-- refused_state: return the state of a task that is not to start; has_begun: this call has started
-- it.
local function refused_state(id, has_begun)
  local task = has_begun and {state = 'running'} or load_tasks({id})[id]
  return task and task.state or 'gone'
end

-- judge_rows: return the ids of the tasks that start, {id, run, ...} of these tasks, and the reply.
-- waits: {row -> true} of the rows that wait for others, or false for none.
local function judge_rows(ids, owners, runs, waits)
  local texts = redis.call('HMGET', messages, unpack(ids))
  local mark = ' started=' .. now_ms()
  local begun = {}
  local new_runs = {}
  local run_of = {} -- id -> the run that this call begins
  local reply = {}
  for i, row in rows() do
    local id = ids[i]
    local place = row.text
    local run = run_of[id] or runs[i]
    local word = 'refused'
    local detail = texts[i] or ''
    if waits and waits[i] then
      word = 'wait'
      detail = ''
    elseif not run_of[id] and (run and run == place or not run and owners[i] == row.attempt) then
      word = 'ok'
      run = place .. mark
      run_of[id] = run
      begun[#begun + 1] = id
      new_runs[#new_runs + 1] = id
      new_runs[#new_runs + 1] = run
    elseif run and is_run_at(run, place) then
      word = 'yours'
    else
      detail = in_full().refused_state(id, run_of[id])
    end
    reply[2 * i - 1] = word
    reply[2 * i] = detail
  end
  return begun, new_runs, reply
end

if count == 0 then
  return {}
end
local ids, owners, runs = read_states()
local limit = tonumber(args.most) or 0
local waits = count > limit and in_full().choose_waiting(limit, ids, owners, runs)
local begun, new_runs, reply = judge_rows(ids, owners, runs, waits)
if #begun > 0 then
  redis.call('HDEL', taken, unpack(begun)) -- HDEL comes first, see docs/decisions/0015
  redis.call('HSET', running, unpack(new_runs))
end
return reply
