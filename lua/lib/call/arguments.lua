-- Checks of a call, which come before anything else in a script: the numbers of keys and arguments,
-- their lengths, and the type of each key. Redis does not roll back, so a script finds a damaged
-- key before its first write. The loader writes TYPES and NUMBERS with one entry for each name of
-- the header's KEYS (the last entry is also that of all keys that follow), and the call of
-- refuse_call.

-- COUNTED: {field -> number} of the fields of `meta` that are numbers, as bad_key read them
local COUNTED = {}

-- bad_type: return the error reply for a key of another type than `wanted`, or nil.
local function bad_type(any, wanted)
  local actual = redis.call('TYPE', any).ok
  if actual == wanted or actual == 'none' then
    return nil
  end
  return redis.error_reply(string.format('PSRECORD %s is a %s, not a %s', any, actual, wanted))
end

-- bad_key: return the error reply for a damaged key, or nil. number: which of the header's KEYS the
-- key is. A key is damaged if it has another type than TYPES says, or if a field that NUMBERS names
-- is no number. Puts the numbers into COUNTED.
local function bad_key(number, any)
  local i = math.min(number, #TYPES)
  if TYPES[i] == '' then -- a prefix of keys
    return nil
  end
  local refusal = bad_type(any, TYPES[i])
  local fields = NUMBERS[i]
  if refusal or not fields then
    return refusal
  end
  for n, value in ipairs(redis.call('HMGET', any, unpack(fields))) do
    local field = fields[n]
    if value and not (#value < 16 and string.match(value, '^%-?%d+$')) then
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, field))
    end
    COUNTED[field] = value and tonumber(value) or 0
  end
end

-- refuse_call: return the error reply for a call that has not as many keys and arguments as the
-- header says, or nil. On a Redis Cluster a call has one more key at its end, which no script uses.
local function refuse_call(verb, keys, argv)
  local has_gate = #KEYS == keys + 1 and string.sub(KEYS[#KEYS], -6) == '}:gate'
  if #ARGV == argv and (#KEYS == keys or has_gate) then
    return nil
  end
  return redis.error_reply(string.format('PSARGS %s takes %d keys and %d arguments, not %d and %d',
    verb, keys, argv, #KEYS, #ARGV))
end

-- too_long: return the error reply for the first argument behind `row` that is longer than its
-- limit. limits: {name, limit, ...}. The loader writes the check itself, for every argument of
-- every script (parsync_redis/store/scripts/lengths.py).
local function too_long(verb, row, limits)
  for i = 1, #limits, 2 do
    local name = limits[i]
    local limit = limits[i + 1]
    local text = ARGV[row + (i + 1) / 2]
    if #text > limit then
      return redis.error_reply(string.format('PSARGS %s: %s has %d bytes, %d at most',
        verb, name, #text, limit))
    end
  end
end

-- too_many: return the error reply for a call of more than `limit` rows.
local function too_many(verb, limit)
  return redis.error_reply(string.format('PSARGS %s takes %d rows at most', verb, limit))
end

-- bad_keys: return the error reply for a damaged key among those with these numbers and those from
-- number `from` on, or nil. The script reads the other keys before it writes, which finds the same
-- damage.
local function bad_keys(numbers, from)
  for _, number in ipairs(numbers) do
    local refusal = bad_key(number, KEYS[number])
    if refusal then
      return refusal
    end
  end
  for number = from, #KEYS do
    local refusal = bad_key(number, KEYS[number])
    if refusal then
      return refusal
    end
  end
end

-- bad_number: return the error reply for an argument that is not a whole number from low to high,
-- or nil. what: the name of the argument in the error.
local function bad_number(what, text, low, high)
  local number = #text < 16 and string.find(text, '^%-?%d+$') and tonumber(text)
  if number and number >= low and number <= high then
    return nil
  end
  return redis.error_reply(string.format('PSARGS %s is a whole number from %d to %d',
    what, low, high))
end

-- bad_retention: return the error reply for a retention that is not a number of seconds up to a
-- year, or nil.
local function bad_retention(text)
  return bad_number('retention_s', text, 1, 31536000)
end
