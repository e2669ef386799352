-- finish: accept the outcome of a run, if the run has the task's current attempt, at its place.
-- KEYS: tasks messages running ended
-- ALSO: meta kinds changed later outbox taken dead ended_1 ended_2 events accounts policy pending:
-- ALSO: extra: holders:
-- READS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2
-- ARGV: count channel retention_s (id text outcome)*
--   text: the lease
--   outcome: succeeded, failed, cancelled, or again (the run ended well and wants another run:
--     retry, reject+requeue), and behind a space why; 'unstored failed' or 'unstored cancelled' if
--     the result backend did not take the result, which goes to the outbox
-- RETURNS: (row, word)* of outcomes that do not end the task: again (the task is pending again),
--   yours (this outcome was accepted before), stale
-- ERRORS: PSARGS PSOUTCOME
-- INVARIANT: a final state never changes; a stale attempt's outcome changes nothing. While meta,
--   kinds, changed, later or pending: is damaged, a task that is to wait again goes to no index,
--   and the leader lets the task wait later (repair_task).
-- ATOMICITY: each task by itself; a successor that the run submitted takes effect with its outcome.
-- COMPLEXITY: O(count * log pending)
--- @include task/outcome
--- @include task/transitions
local OUTCOMES = {succeeded = true, failed = true, cancelled = true, again = true}

-- is_known: return whether an outcome is one that a run may have.
local function is_known(outcome)
  local stored = string.match(outcome, '^unstored (%l+)')
  if stored then
    return stored == 'failed' or stored == 'cancelled'
  end
  return OUTCOMES[string.match(outcome, '^%l+')]
end

-- read_rows: return the error reply for an unknown outcome, or nil, and the ids of the rows.
local function read_rows()
  local refusal
  local ids = {}
  for i, row in rows() do
    local outcome = row.outcome
    if outcome ~= 'succeeded' and not refusal and not in_full().is_known(outcome) then
      refusal = redis.error_reply('PSOUTCOME unknown outcome ' .. outcome)
    end
    ids[i] = row.id
  end
  return refusal, ids
end

-- is_plain: return whether finish can end the task with the task's line alone: the outcome is
-- neither 'again' nor 'unstored ...', and the task has no rare fields. 97 is the character 'a', 117
-- is 'u', 43 is '+', with which the line of a task with rare fields begins.
local function is_plain(outcome, line)
  if not line or string.byte(line) == 43 then
    return false
  end
  local first = outcome ~= 'succeeded' and string.byte(outcome)
  return first ~= 97 and first ~= 117
end

-- judge_rows: tell the rows that end a task with its line alone (is_plain) from the other rows.
-- Returns
--   the ids of the tasks that end so, and {id, text, ...} to write into `ended`
--   the events to add: {{id, state, why, place, line}, ...}, nil if each task succeeded
--   the other rows, for accept_outcomes, which reads the whole records of the tasks
--   {id -> true if the task ends with its line alone, else false}
--   {kind -> ids} of the tasks that end and count to accounts
local function judge_rows(ids)
  local runs = redis.call('HMGET', running, unpack(ids))
  local lines = redis.call('HMGET', tasks, unpack(ids))
  local now = now_ms()
  local ended_ids = {}
  local texts = {}
  local noted
  local reports = {}
  local ends = {}
  local counted = {}
  local kind_end = false -- the end of the last line that had accounts, a space and the kind
  local ids_of_kind -- the list of this kind in `counted`
  for i, row in rows() do
    local id = ids[i]
    local place = row.text
    local outcome = row.outcome
    local run = runs[i]
    local line = lines[i]
    local is_alone = is_plain(outcome, line)
    local is_current = is_alone and run and #run < #place + 32 and is_run_at(run, place)
    if is_current and ends[id] == nil then
      local state = outcome
      local why = ''
      if outcome ~= 'succeeded' then
        state, why = string.match(outcome, '^(%l+) ?(.*)$')
        noted = noted or {}
        noted[#noted + 1] = {id = id, state = state, why = why, place = place, line = line}
      end
      local size = #ended_ids
      ended_ids[size + 1] = id
      texts[2 * size + 1] = id
      texts[2 * size + 2] = state .. ' ' .. now .. '\n' .. line .. '\n' .. run .. '\n' .. why
      ends[id] = true
      if has_accounts(line) then
        if not kind_end or string.sub(line, -#kind_end) ~= kind_end then
          kind_end, ids_of_kind = next_kind(line, counted)
        end
        ids_of_kind[#ids_of_kind + 1] = id
      end
    else
      reports[#reports + 1] = {number = i, id = id, place = place, outcome = outcome}
      ends[id] = ends[id] or false
    end
  end
  return ended_ids, texts, noted, reports, ends, counted
end

-- write_ends: end the tasks that judge_rows chose, and add their events. texts: {id, text, ...} for
-- `ended`.
local function write_ends(ended_ids, texts, noted)
  -- HDEL comes first: a full server allows a script that begins with HDEL, see docs/decisions/0015.
  redis.call('HDEL', messages, unpack(ended_ids))
  redis.call('HSET', ended, unpack(texts))
  redis.call('HDEL', running, unpack(ended_ids))
  redis.call('HDEL', tasks, unpack(ended_ids))
  if noted then
    in_full().note_ends(noted)
  end
end

-- load_reports: read the records of the tasks whose outcomes need more than their lines. Return an
-- error reply or nil.
local function load_reports(reports)
  local refusal = in_full().load_outcomes(reports, args.retention_s)
  if not refusal then
    -- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
    -- docs/decisions/0015.
    redis.call('HDEL', messages, '')
  end
  return refusal
end

local refusal, ids = read_rows()
if refusal or count == 0 then
  return refusal or {}
end
local ended_ids, texts, noted, reports, ends, counted = judge_rows(ids)
redis.call('HEXISTS', ended, '') -- raises an error before the first write if `ended` is no hash
if #reports > 0 then
  refusal = load_reports(reports)
end
if refusal then
  return refusal
end
if #ended_ids > 0 then
  write_ends(ended_ids, texts, noted)
end
if next(counted) then
  counting().leave_ended(counted, #reports == 0 and args.channel)
end
if #reports > 0 then
  return in_full().accept_outcomes(reports, ends, args.retention_s, args.channel)
end
return {}
