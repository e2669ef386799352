-- Look at the keys of a call for other types than the header names.

-- wrong_types: report each key that has another type than it should have. Returns {key -> true}.
local function wrong_types(report)
  local wrong = {}
  for i, key in ipairs(KEYS) do
    local refusal = TYPES[i] and bad_type(key, TYPES[i])
    if refusal then
      wrong[key] = true
      report(key, '', refusal.err)
    end
  end
  return wrong
end

-- corrupt_keys: report each key that has another type, or a number field without a number.
-- Returns {key -> whether the key has another type}.
local function corrupt_keys(report)
  local corrupt = {}
  for i, key in ipairs(KEYS) do
    local refusal = bad_key(i, key)
    if refusal then
      corrupt[key] = redis.call('TYPE', key).ok ~= TYPES[i]
      report(key, '', refusal.err)
    end
  end
  return corrupt
end
