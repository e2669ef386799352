-- Checks before a script does anything: as many keys and arguments as its header names, and each key of its type. Redis does
-- not roll back, so a damaged key is found before the first write. The loader writes TYPES and NUMBERS, one entry for each name
-- of the header's KEYS (the last one also for all keys that follow), and the call of refuse_call.

local COUNTED = {} -- field -> number, of the fields that scripts count in, as the check of the keys found them

-- bad_type: return the error reply for a key of another type, or nil.
local function bad_type(any, wanted)
  local is = redis.call('TYPE', any).ok
  if is == wanted or is == 'none' then return nil end
  return redis.error_reply(string.format('PSRECORD %s is a %s, not a %s', any, is, wanted))
end

-- bad_key: return the error reply for a key of another type or with a number field that has no number, or nil.
local function bad_key(at, any)
  local i = math.min(at, #TYPES)
  if TYPES[i] == '' then return nil end -- a prefix of keys
  local bad = bad_type(any, TYPES[i])
  if bad or not NUMBERS[i] then return bad end
  for at_field, value in ipairs(redis.call('HMGET', any, unpack(NUMBERS[i]))) do
    if value and not (#value < 16 and string.match(value, '^%-?%d+$')) then
      return redis.error_reply(string.format('PSRECORD %s has %s that is no number', any, NUMBERS[i][at_field]))
    end
    COUNTED[NUMBERS[i][at_field]] = value and tonumber(value) or 0
  end
end

-- refuse_call: return the error reply for a call that has not as many keys and arguments as the header says, or nil. On a
-- cluster one more key comes last, the gate, which the script does not use.
local function refuse_call(verb, keys, argv)
  if #ARGV == argv and (#KEYS == keys or #KEYS == keys + 1 and string.sub(KEYS[#KEYS], -6) == '}:gate') then return nil end
  return redis.error_reply(string.format('PSARGS %s takes %d keys and %d arguments, not %d and %d',
    verb, keys, argv, #KEYS, #ARGV))
end

-- too_long: return the error reply for the first argument behind `row` that is longer than its limit: {name, limit, ...}. The
-- loader writes the check itself, for every argument of every script (store/scripts/lengths.py).
local function too_long(verb, row, limits)
  for at = 1, #limits, 2 do
    local text = ARGV[row + (at + 1) / 2]
    if #text > limits[at + 1] then
      return redis.error_reply(string.format('PSARGS %s: %s has %d bytes, %d at most', verb, limits[at], #text, limits[at + 1]))
    end
  end
end

-- too_many: return the error reply for a call of too many rows.
local function too_many(verb, most)
  return redis.error_reply(string.format('PSARGS %s takes %d rows at most', verb, most))
end

-- bad_keys: return the error reply for a damaged key among those at these numbers and from number `from` on, or nil. The
-- script reads the other keys before it writes, which finds the same damage.
local function bad_keys(numbers, from)
  for _, at in ipairs(numbers) do
    local bad = bad_key(at, KEYS[at])
    if bad then return bad end
  end
  for at = from, #KEYS do
    local bad = bad_key(at, KEYS[at])
    if bad then return bad end
  end
end

-- bad_number: return the error reply for an argument that is not a whole number from low to high, or nil.
local function bad_number(what, text, low, high)
  local number = #text < 16 and string.find(text, '^%-?%d+$') and tonumber(text)
  if number and number >= low and number <= high then return nil end
  return redis.error_reply(string.format('PSARGS %s is a whole number from %d to %d', what, low, high))
end

-- bad_retention: return the error reply for a retention that is not a number of seconds up to a year, or nil.
local function bad_retention(text) return bad_number('retention_s', text, 1, 31536000) end
