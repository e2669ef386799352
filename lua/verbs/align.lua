-- align: fix the number of shards of the queue for submit, unless it is fixed, and raise the number of submissions to a level.
-- KEYS: meta
-- ARGV: shards usual level
--   shards: 0 closes the queue, unless the number is fixed: submit answers elsewhere until it is
--   usual: the number by which clients submit before a cluster has settings; it counts if they have submitted already
-- RETURNS: the number of shards that is fixed; of a queue that is closed now, `usual` if it has submissions, else 0
-- ERRORS: PSARGS
-- INVARIANT: the number of shards does not change once it is fixed; the number of submissions only grows.
-- ATOMICITY: whole.
-- COMPLEXITY: O(1)
local bad = bad_number('shards', args.shards, 0, 256) or bad_number('usual', args.usual, 1, 256)
  or bad_number('level', args.level, 0, 9e11)
if bad then return bad end
local fixed, submitted = redis.call('HGET', meta, 'shards'), COUNTED.submitted or 0
redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
if not fixed or not string.find(fixed, '^%d+$') then
  fixed = submitted > 0 and args.usual or args.shards
  redis.call('HSET', meta, 'shards', args.shards == '0' and '?' or fixed)
end
if submitted < tonumber(args.level) then redis.call('HSET', meta, 'submitted', args.level) end
return fixed
