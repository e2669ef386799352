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

-- replace_ceilings: write the ceilings {account -> ceiling}; return the accounts whose ceiling
-- differs from before.
local function replace_ceilings(ceilings)
  local changes = find_changes(pairs_of(redis.pcall('HGETALL', KEY.policy)), ceilings)
  redis.call('DEL', KEY.policy)
  write_all('HSET', KEY.policy, flat(ceilings))
  return changes
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
