-- expire: cancel tasks that wait past their expiry, and forget kinds that have ended. The leader calls it in each pass; take
-- checks the expiry as well.
-- KEYS: meta kinds changed later outbox expires tasks messages taken running dead ended ended_1 ended_2 pending: extra:
-- ALSO: events
-- ARGV: retention_s limit
-- RETURNS: the ids of the expired tasks
-- ERRORS: PSARGS
-- INVARIANT: only pending and taken tasks expire. One that is placed or runs is checked again a minute later: it may be
--   pending again by then. So is one with a successor, which may expire.
-- ATOMICITY: state and indexes change together.
-- COMPLEXITY: O(limit * log pending)
--- @include task/transitions
--- @include kind/sweep
local bad = bad_retention(args.retention_s) or bad_number('limit', args.limit, 0, 1000)
if bad then return bad end
local now, expired = now_ms(), {}
local ids = redis.call('ZRANGEBYSCORE', expires, '-inf', now, 'LIMIT', 0, args.limit)
local found = load_tasks(ids)
for _, task in pairs(found) do bad = bad or task.state == 'pending' and bad_home(task) or nil end
if bad then return bad end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
for _, id in ipairs(ids) do
  local task = found[id]
  local due = task and task.line and option(task.line, 'expires')
  if due and not (#due < 16 and string.match(due, '^%d+$')) then due = nil end
  if not task or FINAL[task.state] then
    redis.call('ZREM', expires, id)
  elseif task.run or task.extra.next and not is_past(due, now) then -- its line does not have its successor's expiry yet
    redis.call('ZADD', expires, string.format('%d', math.min(now + 60000, not task.run and due or math.huge)), id)
  elseif not due then
    redis.call('ZREM', expires, id)
  elseif not is_past(due, now) then
    redis.call('ZADD', expires, due, id)
  else
    redis.call('ZREM', expires, id)
    redis.call('ZREM', later, id)
    if task.state == 'pending' then leave(task.line.kind, id, task.line.order) end
    end_unseen(task, 'cancelled', now, 'expired', args.retention_s)
    expired[#expired + 1] = id
  end
end
write_outbox(outbox)
write_kinds(meta, kinds, changed)
sweep(meta, kinds, changed)
return expired
