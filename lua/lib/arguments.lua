-- What every script asks before it does anything: are there as many keys and arguments as its header says, and is each
-- key what it must be? Redis does not roll back, so a key that cannot be is met before the first write. TYPES and NUMBERS
-- are of the script's keys, in order, the last for all that follow; the loader writes them.

-- bad_key: the error reply for a key of another type, or with a number that is none, or nil.
local function bad_key(at, any)
  local i = math.min(at, #TYPES)
  local is = redis.call('TYPE', any).ok
  if TYPES[i] == '' or is == 'none' then return nil end
  if is ~= TYPES[i] then
    return redis.error_reply(string.format('PSRECORD %s is a %s, not a %s', any, is, TYPES[i]))
  end
  if not NUMBERS[i] then return nil end
  for at_field, value in ipairs(redis.call('HMGET', any, unpack(NUMBERS[i]))) do
    if value and not (#value < 16 and string.match(value, '^%-?%d+$')) then
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, NUMBERS[i][at_field]))
    end
  end
end

-- bad_count: the error reply for a call that this script must not carry out, or nil. It looks at the first `probed` keys, or
-- at all; the others the script reads itself before it writes anything (lib/batch.lua), and that tells as well.
local function bad_count(verb, keys, argv, probed)
  if #KEYS ~= keys or #ARGV ~= argv then
    return redis.error_reply(string.format('PSARGS %s takes %.0f keys and %.0f arguments, not %d and %d',
      verb, keys, argv, #KEYS, #ARGV))
  end
  for at = 1, probed or #KEYS do
    local bad = bad_key(at, KEYS[at])
    if bad then return bad end
  end
end

-- bad_number: the error reply for an argument that is not a whole number from low to high, or nil.
local function bad_number(what, text, low, high)
  local number = #text < 16 and string.find(text, '^%-?%d+$') and tonumber(text)
  if number and number >= low and number <= high then return nil end
  return redis.error_reply(string.format('PSARGS %s is a whole number from %.0f to %.0f', what, low, high))
end

-- bad_retention: the error reply for a retention that is no number of seconds up to a year, or nil.
local function bad_retention(text) return bad_number('retention_s', text, 1, 31536000) end
