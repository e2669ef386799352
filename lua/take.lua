-- take: up to `limit` pending tasks become taken by this scheduler, each with its next attempt.
-- KEYS: meta pending later taken task:
-- ARGV: scheduler limit salt
--   salt is what the taker drew: what tells its attempts from those of takes that the server lost, docs/decisions/0016
--   KEYS[5] is the prefix of the task records: which tasks they are, only `pending` knows; all are of one tag.
-- RETURNS: {still pending, now_ms, (id, attempt, needs, strategy, ready_ms)*}; ready_ms: since when it could be taken
-- ERRORS: PSARGS
-- INVARIANT: a taken task is in `taken` and not in `pending`; its attempt is one that was never given out before.
-- ATOMICITY: a task is taken by one scheduler only.
-- COMPLEXITY: O(limit * log pending)
--- @include arguments
--- @include clock
local bad = bad_count('take', 5, 3)
if bad then return bad end
local _, pending, later, taken, prefix = unpack(KEYS)
local scheduler, limit, salt = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now = now_ms()
redis.call('ZADD', pending, 'XX', 0, '') -- changes nothing; a full server refuses it first, docs/decisions/0015

for _, id in ipairs(redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, limit)) do
  redis.call('ZREM', later, id)
  local order = redis.call('HGET', prefix .. id, 'order')
  if order then redis.call('ZADD', pending, order, id) end
end

local popped, reply, owners = redis.call('ZPOPMIN', pending, limit), {0, now}, {}
for i = 1, #popped, 2 do
  local id = popped[i]
  local attempt, needs, strategy, ready = unpack(redis.call('HMGET', prefix .. id,
    'attempt', 'needs', 'strategy', 'ready_ms'))
  if attempt then
    local number, life = string.match(attempt, '^(%d+)@(%d+)')
    attempt = string.format('%.0f@%s%s', number + 1, life, salt)
    redis.call('HSET', prefix .. id, 'state', 'taken', 'attempt', attempt, 'scheduler', scheduler, 'taken_ms', now)
    owners[#owners + 1] = id
    owners[#owners + 1] = scheduler
    for _, value in ipairs({id, attempt, needs, strategy, ready}) do reply[#reply + 1] = value end
  end
end
if #owners > 0 then redis.call('HSET', taken, unpack(owners)) end
reply[1] = redis.call('ZCARD', pending)
return reply
