-- ring: ring the doorbell of a lease again, because its message was lost. Does not ring while the
-- node has messages to read.
-- KEYS: slots inbox
-- READS: slots inbox
-- ARGV: seat text
--   seat: the seat of the first slot, 'n1/3'
--   text: the place
-- RETURNS: rung, waiting (the inbox is not empty) or none (the lease is gone)
-- ERRORS: PSARGS
-- INVARIANT: a doorbell names a lease that exists.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(1)
local lease = redis.call('HGET', slots, args.seat)
if lease ~= args.text then
  return 'none'
end
if redis.call('LLEN', inbox) > 0 then
  return 'waiting'
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', slots, '')
redis.call('LPUSH', inbox, lease)
return 'rung'
