-- revive: return dead tasks to pending, with all their starts before them.
-- KEYS: meta kinds changed outbox dead pending: task*
-- ARGV: count channel why id*
-- RETURNS: a word per task: revived, or its present state; gone if it has no record
-- ERRORS: PSARGS
-- INVARIANT: only a dead task goes back; its attempts go on counting, so that none is given out twice.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include batch
--- @include clock
--- @include queue
local why = args.why
local function read(key) return redis.pcall('HMGET', key, 'state') end
local tasks, damage = read_tasks(read)
if damage then return damage end
local homes, replies = {}, {}
for i, _, key in rows() do
  if tasks[i] and tasks[i][1] == 'dead' then
    homes[i] = home_of(key)
    local bad = bad_kind(pending_prefix, homes[i].kind)
    if bad then return bad end
  end
end
for i, row, key in rows() do
  local id = row.id
  local state = (tasks[i] or read(key))[1]
  if homes[i] then
    redis.call('HSET', key, 'starts', 0, 'why', why) -- first: a full server takes no more work in, docs/decisions/0015
    redis.call('HDEL', key, 'finished_ms')
    redis.call('PERSIST', key)
    redis.call('ZREM', dead, id)
    to_pending(key, id, homes[i])
    to_outbox(id, 'pending', why)
    replies[i] = 'revived'
  else
    replies[i] = state or 'gone'
  end
end
write_outbox(outbox)
if write_kinds(meta, kinds, changed) then wake(args.channel, meta) end
return replies
