-- Remove limits that no app declares any more from the ceilings of a shard.
--- @include kind/policy

-- limits_in_use: return {limit or pattern -> true} of what an app of this shard declares, and of
-- what tasks of this shard hold or wait under. A damaged line holds something.
local function limits_in_use(kinds)
  local in_use = {}
  for _, tasks in pairs(pairs_of(redis.call('HGETALL', KEY.names))) do
    local rows = declared_limits(tasks, 1)
    for i = 1, #rows, 2 do
      in_use[rows[i]] = true
    end
  end
  local accounts = redis.pcall('HKEYS', KEY.accounts)
  read_accounts(accounts)
  for _, name in ipairs(accounts) do
    in_use[name] = in_use[name] or account_of(name).count ~= 0
    in_use[pattern_of(name)] = in_use[pattern_of(name)] or in_use[name]
  end
  for _, kind in ipairs(redis.call('HKEYS', kinds)) do
    for _, share in ipairs(shares_of(kind)) do
      in_use[share.name] = true
      in_use[pattern_of(share.name)] = true
    end
  end
  return in_use
end

-- remove_declared: remove those of these ceilings {account -> ''} that are declared and not in use;
-- return their accounts.
local function remove_declared(kinds, texts)
  local before = pairs_of(redis.pcall('HGETALL', KEY.policy))
  local in_use = limits_in_use(kinds)
  local removed = {}
  for name in pairs(texts) do
    if before[name] and is_declared(before[name]) and not in_use[name] then
      removed[#removed + 1] = name
    end
  end
  write_all('HDEL', KEY.policy, removed)
  return removed
end
