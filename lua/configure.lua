-- configure: the first scheduler writes what the whole cluster shares; everyone else reads it.
-- KEYS: config
-- ARGV: (name value)*
-- RETURNS: (name, value)* as they now are
-- ERRORS: PSARGS
-- INVARIANT: what is written once does not change.
-- ATOMICITY: whole.
-- COMPLEXITY: O(settings)
--- @include arguments
local bad = bad_count('configure', 1, 2 * math.ceil(#ARGV / 2))
if bad then return bad end
if #ARGV > 0 and redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
return redis.call('HGETALL', KEYS[1])
