-- expire: what waits past its expiry is cancelled; the leader asks with each pass. (What is taken is judged by take as well.)
-- KEYS: pending later taken outbox expires task:
-- ARGV: retention_s limit
--   KEYS[6] is the prefix of the task records: which tasks are due, only `expires` knows; all are of one tag.
-- RETURNS: the ids of what has expired
-- ERRORS: PSARGS
-- INVARIANT: only pending and taken tasks expire. One that is placed or runs is looked at again a minute later: it may have
--   been put back by then.
-- ATOMICITY: state and indexes change together.
-- COMPLEXITY: O(limit * log pending)
--- @include arguments
--- @include clock
--- @include queue
local bad = bad_count('expire', 6, 2) or bad_retention(ARGV[1]) or bad_number('limit', ARGV[2], 0, 1000)
if bad then return bad end
local pending, later, taken, outbox, expires, prefix = unpack(KEYS)
local retention_s, limit, now, expired = ARGV[1], tonumber(ARGV[2]), now_ms(), {}
redis.call('HDEL', taken, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
for _, id in ipairs(redis.call('ZRANGEBYSCORE', expires, '-inf', now, 'LIMIT', 0, limit)) do
  local key, state, due = prefix .. id, nil, nil
  if redis.call('TYPE', key).ok == 'hash' then state, due = unpack(redis.call('HMGET', key, 'state', 'expires_ms')) end
  if not state or FINAL[state] then
    redis.call('ZREM', expires, id)
  elseif state == 'placed' or state == 'running' then -- what it has asked for its next attempt is not in the record yet
    redis.call('ZADD', expires, string.format('%.0f', now + 60000), id)
  elseif #(due or '') > 15 or not string.match(due or '', '^%d+$') then
    redis.call('ZREM', expires, id)
  elseif not is_past(due, now) then
    redis.call('ZADD', expires, due, id)
  else
    redis.call('ZREM', expires, id)
    redis.call('ZREM', pending, id)
    redis.call('ZREM', later, id)
    redis.call('HDEL', taken, id)
    to_expired(key, id, outbox, now, retention_s)
    expired[#expired + 1] = id
  end
end
return expired
