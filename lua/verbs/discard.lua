-- discard: delete a key that has the wrong type or a damaged number. Only for keys whose content
-- comes back by itself.
-- KEYS: any
-- ARGV: type field*
--   type: the type that the key must have
--   field: a field that must be a whole number, if the key has the field
-- RETURNS: 1 if the key was deleted, 0 if it is sound
-- ERRORS: PSARGS
-- INVARIANT: a key that has the right type and whole numbers stays.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(fields)
local type_of_key = redis.call('TYPE', any).ok
local is_sound = type_of_key == 'none' or type_of_key == args.type
if type_of_key == 'hash' then
  for _, row in rows() do
    local number = redis.call('HGET', any, row.field) or '0'
    is_sound = is_sound and #number < 16 and string.find(number, '^%-?%d+$') ~= nil
  end
end
if is_sound then
  return 0
end
return redis.call('DEL', any)
