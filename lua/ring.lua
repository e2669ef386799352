-- ring: the doorbell of a lease again, because its message was lost; not while the node has messages to read.
-- KEYS: slots inbox
-- ARGV: node slot task attempt inc
-- RETURNS: rung, waiting (the inbox is not empty) or none (the lease is gone)
-- ERRORS: PSARGS
-- INVARIANT: a doorbell names a lease that stands.
-- ATOMICITY: whole.
-- COMPLEXITY: O(1)
--- @include arguments
--- @include lease
--- @include doorbell
local bad = bad_count('ring', 2, 5)
if bad then return bad end
local slots, inbox = KEYS[1], KEYS[2]
local name, slot, task, attempt, inc = unpack(ARGV)
local lease = parse_lease(redis.call('HGET', slots, name .. '/' .. slot))
if not lease or not lease.slots or lease.task ~= task or lease.attempt ~= attempt or lease.inc ~= inc then
  return 'none'
end
if redis.call('LLEN', inbox) > 0 then return 'waiting' end
redis.call('HDEL', slots, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
redis.call('LPUSH', inbox, doorbell(task, attempt, lease.slots, inc, lease.since))
return 'rung'
