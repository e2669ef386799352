-- set_policy: replace the ceilings of this shard, and wake a scheduler.
-- KEYS: meta kinds changed
-- ALSO: accounts policy holders:
-- ARGV: count channel (account text)*
--   account: an account, or a pattern; text: its ceiling, see lib/kind/ceilings.lua; behind it
--     ' shards=N' if the queue has several shards
-- RETURNS: how many ceilings are new, changed or gone
-- ERRORS: PSARGS
-- INVARIANT: tasks that count to an account go on when its ceiling falls below what they hold; the
--   account has room again when enough of them have ended. Allotments stay as they are.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(ceilings + accounts)
--- @include kind/changing
--- @include cluster/wake

-- read_rows: return an error reply or nil, and {account -> ceiling} of the rows.
local function read_rows()
  local refusal
  local ceilings = {}
  for _, row in rows() do
    if not string.find(row.account, '^[@%w][%w_.:@+/*-]*$') then
      refusal = redis.error_reply('PSARGS an account is letters, digits and _.:@+/-')
    elseif not string.find(row.text, '^%l[%l%d_.]*=%d[%l%d_.=/ ]*$') then
      refusal = redis.error_reply('PSARGS a ceiling is words NAME=N')
    end
    ceilings[row.account] = row.text
  end
  return refusal, ceilings
end

-- count_changes: return how many ceilings differ, and the accounts among them.
local function count_changes(before, ceilings)
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
-- allotments of this shard (lib/kind/allotments.lua) and stay.
local function split_fields(fields)
  local ceilings = {}
  local allotments = {}
  for name, text in pairs(fields) do
    local values = string.find(name, '^[=#]') and allotments or ceilings
    values[name] = text
  end
  return ceilings, allotments
end

-- let_try: let each account that refused tasks, or whose ceiling has changed, be tried again.
local function let_try(changes)
  local names = {unpack(changes)}
  for name in pairs(pairs_of(redis.pcall('HGETALL', accounts))) do
    names[#names + 1] = name
  end
  read_accounts(names)
  for _, name in ipairs(names) do
    touch_account(name).full = false
  end
end

local refusal, ceilings = read_rows()
refusal = refusal or bad_counts(meta)
if refusal then
  return refusal
end
local before, allotments = split_fields(pairs_of(redis.pcall('HGETALL', policy)))
local changes = count_changes(before, ceilings)
redis.call('DEL', policy)
write_all('HSET', policy, flat(ceilings))
write_all('HSET', policy, flat(allotments))
if #changes > 0 then
  let_try(changes)
  write_changes(meta, kinds, changed)
  wake(args.channel, meta)
end
return #changes
