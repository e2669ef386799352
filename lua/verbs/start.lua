-- start: start the current attempt of a task, at most once and only where it was placed. The reply has the message to run.
-- KEYS: taken running messages
-- ALSO: tasks dead ended ended_1 ended_2 extra:
-- READS: tasks messages taken running dead ended ended_1 ended_2
-- ARGV: count most (id attempt text)*
--   most: how many of these tasks may run now; text: the doorbell's, which is the lease's
-- RETURNS: two values per task: 'ok', message; 'yours', message (the same place asks again); 'wait', '' (`most` others run, or
--   come before it in the queue's order); or 'refused', state of the task
-- ERRORS: PSARGS
-- INVARIANT: an attempt starts at most once; only from taken or placed; once `confirm` wrote a place, only there.
-- ATOMICITY: each task by itself. A start also removes the task from `taken`, so no leader gives a running task back.
-- COMPLEXITY: O(count)
--- @include call/clock
--- @include task/record
--- @include task/start_order
local ids, attempts, texts, reply, begun, runs, got, w = {}, {}, {}, {}, {}, {}, {}, 0
for i, row in rows() do ids[i], attempts[i], texts[i] = row.id, row.attempt, row.text end
if count == 0 then return reply end
local owners, held = redis.call('HMGET', taken, unpack(ids)), redis.call('HMGET', running, unpack(ids))
local found, mark = redis.call('HMGET', messages, unpack(ids)), ' started=' .. now_ms()
local most = tonumber(args.most) or 0
local waits = count > most and in_full().beyond(most, ids, attempts, texts, owners, held)
for i = 1, count do
  local id, text = ids[i], texts[i]
  local run = got[id] or held[i]
  if waits and waits[i] then
    reply[2 * i - 1], reply[2 * i] = 'wait', ''
  elseif not got[id] and (run and run == text or not run and owners[i] == attempts[i]) then
    w = w + 1
    run = text .. mark
    begun[w], runs[2 * w - 1], runs[2 * w], got[id] = id, id, run, run
    reply[2 * i - 1], reply[2 * i] = 'ok', found[i] or ''
  elseif run and string.sub(run, 1, #text + 9) == text .. ' started=' then
    reply[2 * i - 1], reply[2 * i] = 'yours', found[i] or ''
  else
    local task = got[id] and {state = 'running'} or in_full().load_tasks({id})[id]
    reply[2 * i - 1], reply[2 * i] = 'refused', task and task.state or 'gone'
  end
end
if w > 0 then
  redis.call('HDEL', taken, unpack(begun)) -- first: a full server allows it, docs/decisions/0015
  redis.call('HSET', running, unpack(runs))
end
return reply
