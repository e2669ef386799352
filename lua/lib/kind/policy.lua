-- Replace the ceilings of a shard.
--- @include kind/changing

-- find_changes: return the accounts whose ceilings differ.
local function find_changes(before, ceilings)
  local changes = {}
  for name, text in pairs(ceilings) do
    changes[#changes + 1] = before[name] ~= text and name or nil
  end
  for name in pairs(before) do
    changes[#changes + 1] = not ceilings[name] and name or nil
  end
  return changes
end

-- pairs_of: return the reply of HGETALL as a table; an empty table for a key of another type.
local function pairs_of(words)
  local values = {}
  for i = 1, #words, 2 do
    values[words[i]] = words[i + 1]
  end
  return values
end

-- split_fields: return the ceilings, and the fields that begin with '=' or '#', which are about the
-- allotments of this shard (lib/kind/allotments.lua).
local function split_fields(fields)
  local ceilings = {}
  local allotments = {}
  for name, text in pairs(fields) do
    local values = string.find(name, '^[=#]') and allotments or ceilings
    values[name] = text
  end
  return ceilings, allotments
end

-- replace_ceilings: write the ceilings {account -> ceiling}; return the accounts whose ceiling
-- differs from before. Allotments stay.
local function replace_ceilings(ceilings)
  local before, allotments = split_fields(pairs_of(redis.pcall('HGETALL', KEY.policy)))
  redis.call('DEL', KEY.policy)
  write_all('HSET', KEY.policy, flat(ceilings))
  write_all('HSET', KEY.policy, flat(allotments))
  return find_changes(before, ceilings)
end

-- let_try: let each account that refused tasks, or whose ceiling has changed, be tried again.
local function let_try(changes)
  local names = {unpack(changes)}
  for name in pairs(pairs_of(redis.pcall('HGETALL', KEY.accounts))) do
    names[#names + 1] = name
  end
  read_accounts(names)
  for _, name in ipairs(names) do
    touch_account(name).full = false
  end
end
