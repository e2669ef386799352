-- Shares: to which accounts the tasks of a kind count, and what each task holds of them. Most calls
-- are about few kinds, and most kinds of a call have the same needs: what this call has found is
-- kept. Nobody changes a share.
local NOT_COUNTED = ' next units shards rate burst '
local ASKED = {} -- name, needs and strategy of a kind -> {name of an amount -> number}
local SHARES = {} -- kind -> a list of shares, tables with the fields below
local UNIT = {units = 1}

-- The fields of a share:
--   name: of the account
--   asked: what one task holds
--   is_open: whether the account has no ceiling, that of a key; else nil

-- split_last: return a text without its last word, and what the word has behind `mark`, ' under=';
-- or the text alone, if its last word does not begin so.
local function split_last(text, mark)
  local from, to = string.find(text, mark, 1, true)
  while from do
    local word = string.match(text, '^%S+$', to + 1)
    if word then
      return string.sub(text, 1, from - 1), word
    end
    from, to = string.find(text, mark, to + 1, true)
  end
  return text
end

-- split_accounts: return the name, the needs and the strategy of a kind as one text, its tenant,
-- and its limits; nil for a kind without a tenant, or without limits.
local function split_accounts(kind)
  local head, limits = split_last(kind, ' under=')
  local bare, tenant = split_last(head, ' for=')
  return bare, tenant, limits
end

-- split_kind: return the name, the needs, the strategy ('' without one) and the preferences (nil
-- without any) of a kind.
local function split_kind(kind)
  local name, words = string.match(split_accounts(kind), '^(%S+) (.*)$')
  local needs, strategy = string.match(words or '', '^(.*) (%l+)$')
  needs = needs or words
  local bare, prefer = split_last(needs or '', ' prefer=')
  return name, needs and bare, strategy or '', prefer
end

-- amounts_asked: return {name -> number} of the amounts in needs. The words of `apart` are no
-- amounts of a tenant, nor are words that mean something else in a line or a ceiling.
local function amounts_asked(needs)
  if ASKED[needs] then
    return ASKED[needs]
  end
  local asked = {}
  ASKED[needs] = asked
  local slots = string.match(needs, '^[^ =]+ slots=(%d+)$')
  if slots then
    asked.slots = tonumber(slots)
    return asked
  end
  for name, amount in string.gmatch(needs, '%f[!-~](%l[%l%d_.]*)=(%d+%.?%d*)') do
    local is_other = string.find(NOT_COUNTED, ' ' .. name .. ' ', 1, true)
    if not is_other and string.sub(name, 1, 6) ~= 'apart_' then
      asked[name] = tonumber(amount)
    end
  end
  return asked
end

-- add_tenants: add the shares of a tenant and of those above, from the root down.
local function add_tenants(shares, tenant, asked)
  local path
  for word in string.gmatch(tenant, '[^/]+') do
    path = path and path .. '/' .. word or '@' .. word
    shares[#shares + 1] = {name = path, asked = asked}
  end
end

-- add_limits: add the shares of several limits, or of limits with units.
local function add_limits(shares, limits)
  for name, units in string.gmatch(limits, '([^,*]+)%*?(%d*)') do
    shares[#shares + 1] = {name = name, asked = {units = tonumber(units) or 1}}
  end
end

-- add_key: add the share of the key of the rule `warm`, if a kind has the rule.
local function add_key(shares, kind)
  local _, _, _, prefer = split_kind(kind)
  local key = string.match(',' .. (prefer or ''), ',warm=([^,]+)')
  if key then
    shares[#shares + 1] = {name = '~' .. key, asked = UNIT, is_open = true}
  end
end

-- shares_of: return which accounts a task of a kind counts to, tenants from the root down, and what
-- the task holds of each.
local function shares_of(kind)
  local shares = SHARES[kind]
  if shares then
    return shares
  end
  shares = {}
  SHARES[kind] = shares
  local needs, tenant, limits = split_accounts(kind)
  if tenant and string.find(tenant, '/', 1, true) then
    add_tenants(shares, tenant, amounts_asked(needs))
  elseif tenant then
    shares[1] = {name = '@' .. tenant, asked = amounts_asked(needs)}
  end
  if limits and string.find(limits, '[,*]') then
    add_limits(shares, limits)
  elseif limits then
    shares[#shares + 1] = {name = limits, asked = UNIT}
  end
  if string.find(kind, 'warm=', 1, true) then
    add_key(shares, kind)
  end
  return shares
end
