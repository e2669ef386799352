-- Replace the ceilings of a shard, and add those that apps declare.
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

-- is_declared: return whether a ceiling is one that an app declares.
local function is_declared(text)
  return string.find(text, ' declared=1', 1, true) ~= nil
end

-- is_covered: return whether an entry of the policy, its own or its pattern, counts for a limit in
-- place of what an app declares. ceilings: {account -> ceiling}.
local function is_covered(ceilings, name)
  local text = ceilings[name]
  local pattern_text = ceilings[pattern_of(name)]
  return text and not is_declared(text) or pattern_text and not is_declared(pattern_text)
end

-- with_declared: return the ceilings of the rows {account -> ceiling}, and the declared ones of
-- before that no row names or covers.
local function with_declared(texts, before)
  local ceilings = {}
  for name, text in pairs(texts) do
    ceilings[name] = text
  end
  for name, text in pairs(before) do
    if is_declared(text) and not texts[name] and not is_covered(texts, name) then
      ceilings[name] = text
    end
  end
  return ceilings
end

-- replace_ceilings: write the ceilings {account -> ceiling}; return the accounts whose ceiling
-- differs from before. Allotments stay, and declared ceilings that no row names or covers.
local function replace_ceilings(texts)
  local before, allotments = split_fields(pairs_of(redis.pcall('HGETALL', KEY.policy)))
  local ceilings = with_declared(texts, before)
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

-- declared_limits: return {account, ceiling, ...} of the limits in the text of an app (see
-- parsync_redis/model/apps.py), as a shard has them.
local function declared_limits(tasks, shards)
  local rows = {}
  local suffix = shards > 1 and string.format(' shards=%d', shards) or ''
  for name, ceiling in string.gmatch(tasks, '\n (%w[%w_.:@+/*-]*) (%l[%l%d=/ ]*)%f[\n]') do
    rows[#rows + 1] = name
    rows[#rows + 1] = ceiling .. ' declared=1' .. suffix
  end
  return rows
end

-- declare_limits: write the limits that an app declares, unless the shard knows them: what several
-- apps declare differently, the leader compares. Return an error reply, or nil and whether
-- something was written.
local function declare_limits(meta, kinds, changed, tasks)
  local refusal, shards = bad_counts(meta, 'shards')
  refusal = refusal or bad_type(KEY.policy, 'hash')
  if refusal then
    return refusal
  end
  local ceilings = pairs_of(redis.call('HGETALL', KEY.policy))
  local rows = declared_limits(tasks, tonumber(shards) or 1)
  local names = {}
  local fields = {}
  for i = 1, #rows, 2 do
    if not ceilings[rows[i]] and not is_covered(ceilings, rows[i]) then
      names[#names + 1] = rows[i]
      fields[#fields + 1] = rows[i]
      fields[#fields + 1] = rows[i + 1]
    end
  end
  if #names > 0 then
    write_all('HSET', KEY.policy, fields)
    let_try(names)
    write_changes(meta, kinds, changed)
  end
  return nil, #names > 0
end
