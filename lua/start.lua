-- start: start the current attempt of a task, at most once and only where it was placed. The reply has the message to run.
-- KEYS: taken running messages
-- ALSO: tasks dead ended ended_1 ended_2 extra:
-- READS: tasks messages taken running dead ended ended_1 ended_2
-- ARGV: count (id attempt text)*
--   text: the doorbell's, which is the lease's
-- RETURNS: two values per task: 'ok', message; or 'yours', message (the same place asks again); or 'refused', state of the task
-- ERRORS: PSARGS
-- INVARIANT: an attempt starts at most once; only from taken or placed; once `confirm` wrote a place, only there.
-- ATOMICITY: each task by itself. A start also removes the task from `taken`, so no leader gives a running task back.
-- COMPLEXITY: O(count)
--- @include clock
--- @include task
local ids, reply, begun, runs, got, w = {}, {}, {}, {}, {}, 0
for i, row in rows() do ids[i] = row.id end
if count == 0 then return reply end
if count > 1000 then return redis.error_reply('PSARGS start takes 1,000 tasks at most') end
local owners, held = redis.call('HMGET', taken, unpack(ids)), redis.call('HMGET', running, unpack(ids))
local found, mark = redis.call('HMGET', messages, unpack(ids)), ' started=' .. now_ms()
for i, row in rows() do
  local id, text = ids[i], row.text
  local run = got[id] or held[i]
  if not got[id] and (run and run == text or not run and owners[i] == row.attempt) then
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
