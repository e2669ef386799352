-- finish: accept the outcome of a run, if it is the current attempt's, at its place.
-- KEYS: tasks messages running ended
-- ALSO: meta kinds changed later outbox taken dead ended_1 ended_2 events pending: extra:
-- READS: meta kinds changed later outbox tasks messages taken running dead ended ended_1 ended_2
-- ARGV: count channel retention_s (id text outcome)*
--   text: the lease; outcome: succeeded, failed, cancelled, or again (the run ended well and wants another: retry,
--   reject+requeue), and behind a space why; 'unstored failed' or 'unstored cancelled' if the result backend did not take
--   the result, which goes to the outbox
-- RETURNS: (row, word)* of outcomes that do not end the task: again (it is pending again), yours (this outcome was
--   accepted before), stale
-- ERRORS: PSARGS PSOUTCOME
-- INVARIANT: a final state never changes; a stale attempt's outcome changes nothing. While meta, kinds, changed, later or
--   pending: is damaged, a task that is to wait again goes to no index, and the leader lets it wait (repair_task).
-- ATOMICITY: each task by itself; a successor that the run submitted takes effect with its outcome.
-- COMPLEXITY: O(count * log pending)
--- @include task/outcome
--- @include task/transitions
local known = {succeeded = true, failed = true, cancelled = true, again = true}

-- is_known: return whether an outcome is one that a run may have.
local function is_known(outcome)
  local stored = string.match(outcome, '^unstored (%l+)')
  if stored then
    return stored == 'failed' or stored == 'cancelled'
  end
  return known[string.match(outcome, '^%l+')]
end

local ids, reply, over, finals, later_on, seen, f, now = {}, {}, {}, {}, {}, {}, 0, now_ms()
local told
for i, row in rows() do
  local outcome = row.outcome
  if outcome ~= 'succeeded' and not is_known(outcome) then
    return redis.error_reply('PSOUTCOME unknown outcome ' .. outcome)
  end
  ids[i] = row.id
end
if count == 0 then return reply end
local runs, lines = redis.call('HMGET', running, unpack(ids)), redis.call('HMGET', tasks, unpack(ids))
for i, row in rows() do
  local id, text, run, line, outcome = ids[i], row.text, runs[i], lines[i], row.outcome
  local mine = run and #run < #text + 32 and string.find(run, text, 1, true) == 1
    and string.find(run, ' started=', #text + 1, true) == #text + 1
  local first = string.byte(outcome)
  local is_plain = first ~= 97 and first ~= 117 -- neither again nor unstored
  if mine and not seen[id] and line and string.byte(line) ~= 43 and is_plain then -- the line has no '+'
    local state, why = outcome, ''
    if outcome ~= 'succeeded' then
      state, why = string.match(outcome, '^(%l+) ?(.*)$')
      told = told or {}
      told[#told + 1] = {id = id, state = state, why = why, text = text, line = line}
    end
    f = f + 1
    over[f], finals[2 * f - 1] = id, id
    finals[2 * f] = state .. ' ' .. now .. '\n' .. line .. '\n' .. run .. '\n' .. why
    seen[id] = 'over'
  else
    seen[id] = seen[id] or 'later'
    later_on[#later_on + 1] = {at = i, id = id, text = text, outcome = outcome}
  end
end
redis.call('HEXISTS', ended, '') -- reads a key before the first write; `messages` is written first
if #later_on > 0 then
  local bad = in_full().bad_outcomes(later_on, args.retention_s)
  if bad then return bad end
  redis.call('HDEL', messages, '') -- changes nothing; as the first write it is as the one below
end
if f > 0 then
  redis.call('HDEL', messages, unpack(over)) -- first: a full server allows it, docs/decisions/0015
  redis.call('HSET', ended, unpack(finals))
  redis.call('HDEL', running, unpack(over))
  redis.call('HDEL', tasks, unpack(over))
end
if told then in_full().note_ends(told) end
for _, asked in ipairs(later_on) do
  local word = in_full().accept(asked, now, args.retention_s, seen[asked.id] == 'over')
  if word ~= 'ok' then reply[#reply + 1], reply[#reply + 2] = asked.at, word end
end
if #later_on > 0 then in_full().write_accepted(args.channel) end
return reply
