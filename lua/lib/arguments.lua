-- bad_count: the error reply for a call whose number of keys or arguments is not what the header says, or nil.
local function bad_count(verb, keys, argv)
  if #KEYS == keys and #ARGV == argv then return nil end
  return redis.error_reply(string.format('PSARGS %s takes %d keys and %d arguments, not %d and %d',
    verb, keys, argv, #KEYS, #ARGV))
end
