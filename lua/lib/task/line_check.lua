-- Check the fields of a task's line that a run depends on.
--- @include kind/fits
--- @include kind/waiting
--- @include task/line

-- is_sound_limit: return whether a word of a kind is a limit, 'stripe' or 'stripe*2'.
local function is_sound_limit(word)
  local name, units = string.match(word, '^(%w[%w_.:@+/-]*)%*?(%d*)$')
  local number = units == '' and 1 or tonumber(units)
  return name and #name <= 128 and number and number >= 1 and number <= 1000
end

-- are_accounts: return whether the tenant and the limits in a kind are well formed; see
-- parsync_redis/model/account.py.
local function are_accounts(kind)
  local _, tenant, limits = split_accounts(kind)
  local count = 0
  for word in string.gmatch((tenant or 'none') .. '/', '([^/]*)/') do
    count = count + 1
    if not string.find(word, '^[%l%d][%l%d_.-]*$') or #word > 32 or count > 3 then
      return false
    end
  end
  count = 0
  for word in string.gmatch((limits or 'none') .. ',', '([^,]*),') do
    count = count + 1
    if not is_sound_limit(word) or count > 8 then
      return false
    end
  end
  return true
end

-- flaw: return which part of a line is damaged, or nil; the line is nil if its text is no line. A
-- task with a flaw cannot run: it ends as failed.
local function flaw(line)
  if not line then
    return 'line'
  end
  local name, needs, strategy = split_kind(line.kind)
  if not string.find(needs or '', '^slots=%d') or not are_needs(needs) then
    return 'needs'
  end
  if not string.find(name or '', '^[!-~]+$') or #name > 255 then
    return 'name'
  end
  if strategy ~= '' and not STRATEGY[strategy] then
    return 'strategy'
  end
  if has_accounts(line.kind) and not are_accounts(line.kind) then
    return 'accounts'
  end
end
