-- discard: a key that is not what it must be is deleted, where what it holds comes back by itself.
-- KEYS: any
-- ARGV: type field*
--   field is one that must be a whole number, if it is there
-- RETURNS: 1 if it was deleted, 0 if it is as it must be
-- ERRORS: PSARGS
-- INVARIANT: a key of its type, with its numbers, stays.
-- ATOMICITY: whole.
-- COMPLEXITY: O(fields)
--- @include arguments
local bad = bad_count('discard', 1, math.max(1, #ARGV))
if bad then return bad end
local any, right = KEYS[1], ARGV[1]
local is = redis.call('TYPE', any).ok
local good = is == 'none' or is == right
for i = 2, is == 'hash' and #ARGV or 1 do
  local number = redis.call('HGET', any, ARGV[i]) or '0'
  good = good and #number < 16 and string.find(number, '^%-?%d+$') ~= nil
end
if good then return 0 end
return redis.call('DEL', any)
