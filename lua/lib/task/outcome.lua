-- Outcomes that need the whole record: of tasks with rare fields, of runs that want another run, and stale ones.
--- @include task/transitions
local TASKS = {} -- id -> task

-- bad_outcomes: read the tasks, and look at the queues in which they would wait; return an error reply or nil.
local function bad_outcomes(rows_asked, retention_s)
  local ids, bad = {}, bad_retention(retention_s) or bad_records() or bad_type(KEY.outbox, 'list')
  if bad then return bad end
  look_at_index()
  for i, asked in ipairs(rows_asked) do ids[i] = asked.id end
  TASKS = load_tasks(ids)
  for _, task in pairs(TASKS) do
    local successor = task.extra and parse_next(task.extra.next)
    look_at_home(task)
    if successor and bad_kind(KEY.pending, successor.kind) then APART = true end
  end
end

-- judge_again: return the word for an outcome of a run that is over: yours for a repeated one, else stale.
local function judge_again(task, text, outcome)
  local state, _, run = string.match(task and task.text or '', '^(%l+)%f[%L][^\n]*\n([^\n]*)\n([^\n]*)')
  return state == outcome and string.sub(run, 1, #text + 9) == text .. ' started=' and 'yours' or 'stale'
end

-- accept: carry out an outcome; return ok, again, yours or stale. `ended`: the task has ended in this call.
local function accept(asked, now, retention_s, ended)
  local task, text = TASKS[asked.id], asked.text
  local unstored = string.match(asked.outcome, '^unstored (.*)$')
  local outcome, why = string.match(unstored or asked.outcome, '^(%l+) ?(.*)$')
  if ended then return judge_again(load_tasks({asked.id})[asked.id], text, outcome) end
  if not task or task.state ~= 'running' or task.place ~= text then return judge_again(task, text, outcome) end
  local cancelled = task.extra.cancel ~= nil
  if (outcome == 'again' or task.extra.next) and outcome ~= 'cancelled' and not cancelled and task.line then
    local due = become_next(task)
    if outcome == 'again' then note_last(task.line, text) end
    to_wait(task, due)
    if outcome == 'again' then note_task(task, 'retried', why, attempt_of(text), text) end
    return 'again'
  end
  local state = outcome == 'again' and 'cancelled' or outcome
  if outcome == 'again' or unstored then
    end_unseen(task, state, now, why, retention_s)
  else
    to_final(task, state, now, why, retention_s)
    if outcome ~= 'succeeded' then
      note_task(task, state, why, attempt_of(text), text)
    end
  end
  task.text = state .. '\n\n' .. text .. ' started='
  return 'ok'
end

-- note_ends: add the events of runs that failed or were cancelled: {id, state, why, text, line}.
local function note_ends(ends)
  for _, one in ipairs(ends) do
    note_task({id = one.id, line = parse_line(one.line)}, one.state, one.why, attempt_of(one.text), one.text)
  end
end

-- write_accepted: write what goes with the outcomes that were carried out.
local function write_accepted(channel)
  write_outbox(KEY.outbox)
  if write_kinds(KEY.meta, KEY.kinds, KEY.changed) then wake(channel, KEY.meta) end
end
