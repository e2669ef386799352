-- Outcomes that need the whole record: of tasks with rare fields, of runs that want another run,
-- and stale outcomes. `outcome` of a row: see finish.
--- @include task/transitions
local ENDING_TASKS = {} -- id -> record, of the tasks whose outcomes this call reports

-- next_kind: return the end of a line, a space and the kind, and the list of the kind in `counted`.
-- A damaged line ends in no kind.
local function next_kind(line, counted)
  local kind = string.match(line, '^%S+ %S+ %S+ %S+ %S+ (.*)$')
  if not kind then
    return false, {}
  end
  counted[kind] = counted[kind] or {}
  return ' ' .. kind, counted[kind]
end

-- load_outcomes: read the records of the tasks, and look at the queues in which they would wait.
-- reports: {{number = of the row, id = id, place = place, outcome = outcome}, ...}. Return an error
-- reply or nil.
local function load_outcomes(reports, retention_s)
  local refusal = bad_retention(retention_s) or bad_records() or bad_type(KEY.outbox, 'list')
  if refusal then
    return refusal
  end
  look_at_index()
  local ids = {}
  for i, report in ipairs(reports) do
    ids[i] = report.id
  end
  ENDING_TASKS = load_tasks(ids)
  for _, task in pairs(ENDING_TASKS) do
    local successor = task.extra and parse_next(task.extra.next)
    look_at_home(task)
    if successor and bad_kind(KEY.pending, successor.kind) then
      APART = true
    end
  end
end

-- judge_repeat: return the word for an outcome of a run that is over: yours if this outcome was
-- accepted before, else stale.
local function judge_repeat(task, place, outcome)
  local pattern = '^(%l+)%f[%L][^\n]*\n([^\n]*)\n([^\n]*)'
  local state, _, run = string.match(task and task.text or '', pattern)
  return state == outcome and is_run_at(run, place) and 'yours' or 'stale'
end

-- run_again: let a task wait whose run has ended and wants another run. A task with a successor
-- waits as its successor.
local function run_again(task, place, outcome, why)
  local due = become_next(task)
  if outcome == 'again' then
    note_last(task.line, place)
  end
  to_wait(task, due)
  if outcome == 'again' then
    note_task(task, 'retried', why, attempt_of(place), place)
  end
end

-- end_run: end a task whose run has ended. is_unstored: whether the result backend did not take the
-- result; then the result goes to the outbox. So does the cancel of what the task would have run
-- next: a run that replaced its task has stored no result.
local function end_run(task, place, outcome, why, is_unstored, retention_s)
  local is_next_cancelled = outcome == 'again' or outcome ~= 'cancelled' and task.extra.next
  local state = is_next_cancelled and 'cancelled' or outcome
  if is_next_cancelled or is_unstored then
    local reason = why == '' and is_next_cancelled and 'revoked' or why
    end_unseen(task, state, now_ms(), reason, retention_s)
  else
    end_task(task, state, now_ms(), why, retention_s)
    if outcome ~= 'succeeded' then
      note_task(task, state, why, attempt_of(place), place)
    end
  end
  task.text = state .. '\n\n' .. place .. ' started='
end

-- accept_outcome: carry out an outcome. has_ended: whether the task has ended in this call. Return
--   ok: the task has ended; again: the task waits again
--   yours: the same outcome was accepted before; stale: the task has another attempt
local function accept_outcome(report, retention_s, has_ended)
  local task = ENDING_TASKS[report.id]
  local place = report.place
  local unstored = string.match(report.outcome, '^unstored (.*)$')
  local outcome, why = string.match(unstored or report.outcome, '^(%l+) ?(.*)$')
  if has_ended then
    return judge_repeat(load_tasks({report.id})[report.id], place, outcome)
  end
  if not task or task.state ~= 'running' or task.place ~= place then
    return judge_repeat(task, place, outcome)
  end
  local is_cancelled = outcome == 'cancelled' or task.extra.cancel ~= nil
  local wants_run = outcome == 'again' or task.extra.next
  if wants_run and not is_cancelled and task.line then
    run_again(task, place, outcome, why)
    return 'again'
  end
  end_run(task, place, outcome, why, unstored, retention_s)
  return 'ok'
end

-- note_ends: add the events of runs that failed or were cancelled; ends: {{id = id, state = state,
-- why = why, place = place, line = the line's text}, ...}.
local function note_ends(ends)
  for _, ending in ipairs(ends) do
    local task = {id = ending.id, line = parse_line(ending.line)}
    note_task(task, ending.state, ending.why, attempt_of(ending.place), ending.place)
  end
end

-- leave_ended: take ended tasks out of their accounts. ids_by_kind: {kind -> ids}; channel: false
-- if accept_outcomes will write the accounts.
local function leave_ended(ids_by_kind, channel)
  if channel then -- load_outcomes has looked at more otherwise
    APART = (bad_type(KEY.changed, 'zset') or bad_type(KEY.meta, 'hash') or bad_counts(KEY.meta))
      and true or false
  end
  for kind, ids in pairs(ids_by_kind) do
    leave_accounts(kind, ids)
  end
  if channel then
    write_waiting(channel)
  end
end

-- accept_outcomes: carry out outcomes. Return (row, word)* of those that do not end their task.
-- ends: {id -> true} of the tasks that have ended in this call.
local function accept_outcomes(reports, ends, retention_s, channel)
  local reply = {}
  for _, report in ipairs(reports) do
    local word = accept_outcome(report, retention_s, ends[report.id])
    if word ~= 'ok' then
      reply[#reply + 1] = report.number
      reply[#reply + 1] = word
    end
  end
  write_outbox(KEY.outbox)
  write_waiting(channel)
  return reply
end
