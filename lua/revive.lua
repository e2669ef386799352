-- revive: dead tasks go back to pending, with all their starts before them.
-- KEYS: meta pending later outbox dead task*
-- ARGV: count channel why id*
-- RETURNS: a word a task: revived, or the state that it is in, gone if nothing is known of it
-- ERRORS: PSARGS
-- INVARIANT: only a dead task goes back; its attempts go on from where they were, so that none is given out twice.
-- ATOMICITY: each task by itself.
-- COMPLEXITY: O(count * log pending)
--- @include arguments
--- @include batch
--- @include clock
--- @include queue
local meta, pending, later, outbox, dead = unpack(KEYS, 1, 5)
local count, channel, why = tonumber(ARGV[1]) or 0, ARGV[2], ARGV[3]
local bad = bad_count('revive', 5 + count, 3 + count, 5)
if bad then return bad end
local function read(key) return redis.pcall('HMGET', key, 'state') end
local tasks, damage = read_tasks(5, read)
if damage then return damage end
local idle, back, replies = redis.call('ZCARD', pending) == 0, false, {}
for i = 1, count do
  local id, key = ARGV[3 + i], KEYS[5 + i]
  local state = (tasks[i] or read(key))[1]
  if state == 'dead' then
    redis.call('HSET', key, 'starts', 0, 'why', why) -- first: a full server takes no more work in, docs/decisions/0015
    redis.call('HDEL', key, 'finished_ms')
    redis.call('PERSIST', key)
    redis.call('ZREM', dead, id)
    to_pending(key, id, pending, later, nil)
    to_outbox(outbox, id, 'pending', why)
    replies[i], back = 'revived', true
  else
    replies[i] = state or 'gone'
  end
end
if idle and back then wake(channel, meta) end
return replies
