-- expire: cancel tasks that wait past their expiry. The leader calls it in each pass; take checks the expiry as well.
-- KEYS: meta kinds changed later taken outbox expires pending: task:
-- ARGV: retention_s limit
--   task: is the prefix of the task records: only `expires` knows which tasks are due; all have one tag
-- RETURNS: the ids of the expired tasks
-- ERRORS: PSARGS
-- INVARIANT: only pending and taken tasks expire. One that is placed or runs is checked again a minute later: it may be
--   pending again by then.
-- ATOMICITY: state and indexes change together.
-- COMPLEXITY: O(limit * log pending)
--- @include clock
--- @include queue
local bad = bad_retention(args.retention_s) or bad_number('limit', args.limit, 0, 1000)
if bad then return bad end
local now, expired, records = now_ms(), {}, {}
local ids = redis.call('ZRANGEBYSCORE', expires, '-inf', now, 'LIMIT', 0, args.limit)
for i, id in ipairs(ids) do
  local key = task_prefix .. id
  local state, due, name, needs, strategy, order =
    unpack(redis.pcall('HMGET', key, 'state', 'expires_ms', 'name', 'needs', 'strategy', 'order')) -- nothing of what is no hash
  records[i] = {key = key, state = state, due = due, kind = kind_text(name, needs, strategy), order = order_text(order)}
  bad = may_wait(state) and bad_kind(pending_prefix, records[i].kind)
  if bad then return bad end
end
redis.call('HDEL', taken, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
for i, id in ipairs(ids) do
  local task = records[i]
  local key, state, due = task.key, task.state, task.due
  if not state or FINAL[state] then
    redis.call('ZREM', expires, id)
  elseif state == 'placed' or state == 'running' then -- the record does not have its successor's expiry yet
    redis.call('ZADD', expires, string.format('%.0f', now + 60000), id)
  elseif #(due or '') > 15 or not string.match(due or '', '^%d+$') then
    redis.call('ZREM', expires, id)
  elseif not is_past(due, now) then
    redis.call('ZADD', expires, due, id)
  else
    redis.call('ZREM', expires, id)
    if may_wait(state) then leave(task.kind, id, task.order) end
    redis.call('ZREM', later, id)
    redis.call('HDEL', taken, id)
    to_expired(key, id, now, args.retention_s)
    expired[#expired + 1] = id
  end
end
write_outbox(outbox)
write_kinds(meta, kinds, changed)
return expired
