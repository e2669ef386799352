-- ring: ring the doorbell of a lease again, because its message was lost; not while the node has messages to read.
-- KEYS: slots inbox
-- READS: slots inbox
-- ARGV: seat text
--   seat: of the first slot, 'n1/3'; text: the place
-- RETURNS: rung, waiting (the inbox is not empty) or none (the lease is gone)
-- ERRORS: PSARGS
-- INVARIANT: a doorbell names a lease that exists.
-- ATOMICITY: whole.
-- COMPLEXITY: O(1)
local lease = redis.call('HGET', slots, args.seat)
if lease ~= args.text then return 'none' end
if redis.call('LLEN', inbox) > 0 then return 'waiting' end
redis.call('HDEL', slots, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
redis.call('LPUSH', inbox, lease)
return 'rung'
