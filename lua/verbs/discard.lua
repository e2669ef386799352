-- discard: delete a key that has the wrong type or a damaged number, where its content comes back by itself.
-- KEYS: any
-- ARGV: type field*
--   field: a field that must be a whole number, if it is there
-- RETURNS: 1 if the key was deleted, 0 if it is sound
-- ERRORS: PSARGS
-- INVARIANT: a key of its type, with its numbers, stays.
-- ATOMICITY: whole.
-- COMPLEXITY: O(fields)
local is = redis.call('TYPE', any).ok
local good = is == 'none' or is == args.type
if is == 'hash' then
  for _, row in rows() do
    local number = redis.call('HGET', any, row.field) or '0'
    good = good and #number < 16 and string.find(number, '^%-?%d+$') ~= nil
  end
end
if good then return 0 end
return redis.call('DEL', any)
