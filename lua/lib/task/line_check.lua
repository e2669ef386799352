-- Check the fields of a task's line that a run depends on.
--- @include kind/fits
--- @include kind/shares
--- @include kind/waiting
--- @include task/line

-- is_sound_limit: return whether a word of a kind is a limit, 'stripe' or 'stripe*2'.
local function is_sound_limit(word)
  local name, units = string.match(word, '^([^*]+)%*(%d+)$')
  local number = tonumber(units or 1)
  name = name or word
  return #name <= 128 and string.find(name, '^%w[%w_.:@+/-]*$') and number >= 1 and number <= 1000
end

-- is_sound_tenant: return whether a word between two '/' of a tenant is well formed.
local function is_sound_tenant(word)
  return #word <= 32 and string.find(word, '^[%l%d][%l%d_.-]*$')
end

-- are_words: return whether words, that a pattern finds in a text, are sound, `most` at most.
-- doubled: two marks of those between words.
local function are_words(text, pattern, doubled, most, is_sound)
  local mark = string.sub(doubled, 1, 1)
  local count = 0
  for word in string.gmatch(text, pattern) do
    count = count + 1
    if count > most or not is_sound(word) then
      return false
    end
  end
  return count > 0 and not string.find(mark .. text .. mark, doubled, 1, true)
end

-- are_accounts: return whether the tenant and the limits in a kind are well formed; see
-- parsync_redis/model/account.py.
local function are_accounts(kind)
  local _, tenant, limits = split_accounts(kind)
  return (not tenant or are_words(tenant, '[^/]+', '//', 3, is_sound_tenant))
    and (not limits or are_words(limits, '[^,]+', ',,', 8, is_sound_limit))
end

-- are_preferences: return whether the preferences of a kind are well formed; see
-- parsync_redis/model/preferences.py. Schedulers pass over rules that they do not know. The key of
-- `warm` is the name of an account.
local function are_preferences(prefer)
  if #prefer > 8000 then
    return false
  end
  local rules = ',' .. prefer .. ','
  local key, behind = string.match(rules, ',warm=([^,]*)(.*)$')
  local is_key = not key or #key <= 128 and string.find(key, '^%w[%w_.:@+/-]*$')
  return string.find(prefer, '^[%w_.:=|!<>*/%%@,+-]+$')
    and not string.find(rules, ',,', 1, true)
    and is_key
    and not string.find(behind or '', ',warm=', 1, true)
end

-- split_counted: return the name, the needs and the limits of a sound kind whose tasks need slots
-- only and count to a tenant without '/' or one limit or both; nil for any other kind. No pattern
-- needs another function, which would cost calls without accounts, too.
local function split_counted(kind)
  local name, needs, words = string.match(kind, '^([!-~]+) (slots=%d+) (.+)$')
  local tenant, limit = string.match(words or '', '^for=([%l%d][%l%d_.-]*) under=(%w[%w_.:@+/-]*)$')
  if not tenant then
    tenant = string.match(words or '', '^for=([%l%d][%l%d_.-]*)$')
    limit = string.match(words or '', '^under=(%w[%w_.:@+/-]*)$')
  end
  if (tenant or limit) and #needs < 23 and #(tenant or '') <= 32 and #(limit or '') <= 128 then
    return name, needs, limit
  end
end

-- flaw: return which part of a line is damaged, or nil; the line is nil if its text is no line. A
-- task with a flaw cannot run: it ends as failed.
local function flaw(line)
  if not line then
    return 'line'
  end
  local name, needs, strategy, prefer = split_kind(line.kind)
  if not string.find(needs or '', '^slots=%d') or not are_needs(needs) then
    return 'needs'
  end
  if not string.find(name or '', '^[!-~]+$') or #name > 255 then
    return 'name'
  end
  if strategy ~= '' and not STRATEGY[strategy] then
    return 'strategy'
  end
  if prefer and not are_preferences(prefer) then
    return 'preferences'
  end
  if has_accounts(line.kind) and not are_accounts(line.kind) then
    return 'accounts'
  end
end
