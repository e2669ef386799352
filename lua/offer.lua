-- offer: what a node offers, and the task names that its worker knows, become known to submit; or are forgotten.
-- KEYS: shapes feasible names
-- ARGV: node offer name*
--   offer is '' for a node that is no more
-- RETURNS: 1 if anything changed, else 0
-- ERRORS: PSARGS
-- INVARIANT: feasible holds only kinds that some shape fits.
-- ATOMICITY: the shape and the forgetting of earlier answers change together.
-- COMPLEXITY: O(names)
--- @include arguments
local bad = bad_count('offer', 3, math.max(2, #ARGV))
if bad then return bad end
local shapes, feasible, names = unpack(KEYS)
local node, offer = ARGV[1], ARGV[2]
local changed = 0
if offer == '' then
  changed = redis.call('HDEL', shapes, node)
elseif redis.call('HGET', shapes, node) ~= offer then
  redis.call('HSET', shapes, node, offer)
  changed = 1
end
for i = 3, #ARGV do changed = math.max(changed, redis.call('SADD', names, ARGV[i])) end
if changed == 1 then redis.call('DEL', feasible) end
return changed
