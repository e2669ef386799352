-- fix_shards: fix the number of shards of the queue for submit, unless the number is fixed already.
-- KEYS: meta
-- ARGV: shards usual
--   shards: 0 closes the queue, unless the number is fixed: submit answers 'elsewhere' to each call
--     until the number is fixed
--   usual: the number of shards that clients assume before a cluster has settings; a queue with
--     submissions gets it
-- RETURNS: the number of shards that is fixed; for a queue that is closed now, `usual` if the queue
--   has submissions, else 0
-- ERRORS: PSARGS
-- INVARIANT: a fixed number of shards does not change.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(1)
local refusal = bad_number('shards', args.shards, 0, 256)
refusal = refusal or bad_number('usual', args.usual, 1, 256)
if refusal then
  return refusal
end
local shards = redis.call('HGET', meta, 'shards')
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', meta, '')
if not shards or not string.find(shards, '^%d+$') then
  shards = COUNTED.submitted and COUNTED.submitted > 0 and args.usual or args.shards
  redis.call('HSET', meta, 'shards', args.shards == '0' and '?' or shards)
end
return shards
