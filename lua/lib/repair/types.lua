-- wrong_types: report each key of a call that has another type than it should; return {key -> true}.
local function wrong_types(tell)
  local wrong = {}
  for at, any in ipairs(KEYS) do
    local bad = TYPES[at] and bad_type(any, TYPES[at])
    if bad then
      wrong[any] = true
      tell(any, '', bad.err)
    end
  end
  return wrong
end

-- corrupt_keys: report each key of a call that has another type or a number field without a number; return {key -> whether it has
-- another type}.
local function corrupt_keys(tell)
  local wrong = {}
  for at, any in ipairs(KEYS) do
    local bad = bad_key(at, any)
    if bad then
      wrong[any] = redis.call('TYPE', any).ok ~= TYPES[at]
      tell(any, '', bad.err)
    end
  end
  return wrong
end
