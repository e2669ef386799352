-- take: up to `limit` pending tasks become taken by this scheduler, each with its next attempt; what has expired ends.
-- KEYS: meta pending later taken outbox task:
-- ARGV: scheduler limit salt retention_s channel waits
--   salt is what the taker drew: what tells its attempts from those of takes that the server lost, docs/decisions/0016
--   KEYS[6] is the prefix of the task records: which tasks they are, only `pending` knows; all are of one tag.
--   waits '1': if there is none, it wants to be woken by the next; if it leaves some, another one that waits is woken
-- RETURNS: {still pending, now_ms, due_ms, (id, attempt, needs, strategy, ready_ms, name)*}; ready_ms: since when it could
--   be taken; attempt '' is of a task that has failed, because its record is damaged: needs says what of it;
--   due_ms: when the next task in `later` is due, '' if there is none
-- ERRORS: PSARGS
-- INVARIANT: a taken task is in `taken` and not in `pending`; its attempt is one that was never given out before; it has
--   not expired, by the server's clock: a promise about lateness, not a lease.
-- ATOMICITY: a task is taken by one scheduler only.
-- COMPLEXITY: O(limit * log pending + waiting schedulers)
--- @include arguments
--- @include batch
--- @include queue
local bad = bad_count('take', 6, 6) or bad_number('limit', ARGV[2], 0, 1000) or bad_retention(ARGV[4])
if bad then return bad end
local meta, pending, later, taken, outbox, prefix = unpack(KEYS)
local scheduler, limit, salt, retention_s = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local now = now_ms()
redis.call('ZADD', pending, 'XX', 0, '') -- changes nothing; a full server refuses it first, docs/decisions/0015

for _, id in ipairs(redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, limit)) do
  redis.call('ZREM', later, id)
  local key = prefix .. id
  if redis.call('TYPE', key).ok == 'hash' then redis.call('ZADD', pending, order_of(key), id) end
end

local due = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2] or ''
local popped, reply, owners = redis.call('ZPOPMIN', pending, limit), {0, now, due}, {}
local function tell(...)
  for _, word in ipairs({...}) do reply[#reply + 1] = word end
end
for i = 1, #popped, 2 do
  local id, key = popped[i], prefix .. popped[i]
  local task = redis.pcall('HMGET', key, 'attempt', 'needs', 'strategy', 'ready_ms', 'expires_ms', 'name')
  local attempt, needs, strategy, ready, due, name = unpack(task)
  local broken = flaw(attempt, needs)
  if broken and redis.call('TYPE', key).ok ~= 'hash' then
    broken = nil -- no task, or none that can be read: it is in no index any more
  elseif task.err then
    return task
  elseif broken then
    local why = 'its record is damaged: ' .. broken
    to_final(key, 'failed', now, why, retention_s)
    to_outbox(outbox, id, 'failed', why)
    tell(id, '', why, '', now, '')
  elseif is_past(due, now) then
    to_expired(key, id, outbox, now, retention_s)
  else
    local number, life = string.match(attempt, '^(%d+)@(%d+)')
    attempt = string.format('%.0f@%s%s', number + 1, life, salt)
    redis.call('HSET', key, 'state', 'taken', 'attempt', attempt, 'scheduler', scheduler, 'taken_ms', now)
    owners[#owners + 1] = id
    owners[#owners + 1] = scheduler
    tell(id, attempt, needs, strategy or '', string.match(ready or '', '^%d+$') or now, name or '')
  end
end
write_all('HSET', taken, owners)
reply[1] = redis.call('ZCARD', pending)
if ARGV[6] == '1' and reply[1] > 0 then wake(ARGV[5], meta, scheduler) end
if ARGV[6] == '1' and reply[1] == 0 and #owners == 0 then wait_in(meta, scheduler) end
return reply
