-- align: fix the number of shards of the queue for submit, unless the number is fixed already.
-- Raises the number of submissions to a level.
-- KEYS: meta
-- ARGV: shards usual level
--   shards: 0 closes the queue, unless the number is fixed: submit answers 'elsewhere' to each call
--     until the number is fixed
--   usual: the number of shards that clients assume before a cluster has settings; a queue with
--     submissions gets it
--   level: the least number of submissions
-- RETURNS: the number of shards that is fixed; for a queue that is closed now, `usual` if the queue
--   has submissions, else 0
-- ERRORS: PSARGS
-- INVARIANT: a fixed number of shards does not change; the number of submissions only grows.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(1)
local refusal = bad_number('shards', args.shards, 0, 256)
refusal = refusal or bad_number('usual', args.usual, 1, 256)
refusal = refusal or bad_number('level', args.level, 0, 9e11)
if refusal then
  return refusal
end
local shards = redis.call('HGET', meta, 'shards')
local submitted = COUNTED.submitted or 0
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', meta, '')
if not shards or not string.find(shards, '^%d+$') then
  shards = submitted > 0 and args.usual or args.shards
  redis.call('HSET', meta, 'shards', args.shards == '0' and '?' or shards)
end
if submitted < tonumber(args.level) then
  redis.call('HSET', meta, 'submitted', args.level)
end
return shards
