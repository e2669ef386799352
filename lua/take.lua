-- take: give up to `limit` pending tasks to a scheduler, each with its next attempt; end those that have expired.
-- KEYS: meta pending later taken outbox task:
-- ARGV: scheduler limit salt retention_s channel waits
--   salt: a random suffix that tells its attempts from those of takes that the server lost, docs/decisions/0016
--   task: is the prefix of the task records: only `pending` knows which tasks they are; all have one tag
--   waits: '1' if it wants to be woken by the next task when it gets none; if it leaves some, another waiter is woken
-- RETURNS: {still pending, now_ms, due_ms, (id, attempt, needs, strategy, ready_ms, name)*}; ready_ms: since when it could
--   be taken; attempt '' marks a task that failed because its record is damaged, and needs says why; due_ms: when the
--   next task in `later` is due, '' if there is none
-- ERRORS: PSARGS
-- INVARIANT: a taken task is in `taken` and not in `pending`; its attempt was never given out before; it has not expired by
--   the server's clock: a promise about lateness, not a lease.
-- ATOMICITY: a task is taken by one scheduler only.
-- COMPLEXITY: O(limit * log pending + waiting schedulers)
--- @include batch
--- @include queue
local bad = bad_number('limit', args.limit, 0, 1000) or bad_retention(args.retention_s)
if bad then return bad end
local scheduler, limit, salt, retention_s = args.scheduler, args.limit, args.salt, args.retention_s
local now = now_ms()
redis.call('ZADD', pending, 'XX', 0, '') -- changes nothing; a full server refuses it, docs/decisions/0015

for _, id in ipairs(redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, limit)) do
  redis.call('ZREM', later, id)
  local key = prefix .. id
  if redis.call('TYPE', key).ok == 'hash' then redis.call('ZADD', pending, order_of(key), id) end
end

local next_due = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or ''
local popped, reply, owners = redis.call('ZPOPMIN', pending, limit), {0, now, next_due}, {}
local function append(...)
  for _, word in ipairs({...}) do reply[#reply + 1] = word end
end
for i = 1, #popped, 2 do
  local id, key = popped[i], prefix .. popped[i]
  local task = redis.pcall('HMGET', key, 'attempt', 'needs', 'strategy', 'ready_ms', 'expires_ms', 'name')
  local attempt, needs, strategy, ready, due, name = unpack(task)
  local broken = flaw(attempt, needs)
  local unlisted = broken and redis.call('TYPE', key).ok ~= 'hash' -- no readable record: the task is in no index any more
  if task.err and not unlisted then
    return task
  elseif broken and not unlisted then
    local why = 'its record is damaged: ' .. broken
    to_final(key, 'failed', now, why, retention_s)
    to_outbox(outbox, id, 'failed', why)
    append(id, '', why, '', now, '')
  elseif not broken and is_past(due, now) then
    to_expired(key, id, outbox, now, retention_s)
  elseif not broken then
    local number, life = string.match(attempt, '^(%d+)@(%d+)')
    attempt = string.format('%.0f@%s%s', number + 1, life, salt)
    redis.call('HSET', key, 'state', 'taken', 'attempt', attempt, 'scheduler', scheduler, 'taken_ms', now)
    owners[#owners + 1] = id
    owners[#owners + 1] = scheduler
    append(id, attempt, needs, strategy or '', string.match(ready or '', '^%d+$') or now, name or '')
  end
end
write_all('HSET', taken, owners)
reply[1] = redis.call('ZCARD', pending)
if args.waits == '1' and reply[1] > 0 then wake(args.channel, meta, scheduler) end
if args.waits == '1' and reply[1] == 0 and #owners == 0 then wait_in(meta, scheduler) end
return reply
