-- Amounts with decimals, in tables {name -> whole number}: 'gpu.' has the thousandths of 'gpu', from 0 to 999, if it has any. So
-- no number is a fraction, and -0.5 is -1 and 500. parsync_redis/model/amount.py

local PARTS = {} -- 'gpu.' -> true for each such key that this call has seen

-- is_part: return whether a text is the amount of a word, with decimals and without a zero at its end.
local function is_part(amount)
  local whole = string.match(amount, '^(%d+)%.%d?%d?[1-9]$')
  return whole ~= nil and #whole < 13
end

-- set_part: note an amount with decimals.
local function set_part(found, name, amount)
  local sign, whole, part = string.match(amount, '^(%-?)(%d+)%.(%d+)$')
  if not sign then return end
  local size, thousandths = tonumber(whole), tonumber(string.sub(part .. '00', 1, 3))
  if sign == '-' then size, thousandths = -size - 1, 1000 - thousandths end
  found[name], found[name .. '.'], PARTS[name .. '.'] = size, thousandths, true
end

-- part_fits: return whether the thousandths `key` that are asked for are there; more whole ones are always enough.
local function part_fits(offered, asked, key)
  local name = string.sub(key, 1, -2)
  return (offered[key] or 0) >= asked[key] or (offered[name] or 0) > (asked[name] or 0)
end

-- add_part: add thousandths to what is left of a resource, if the node declares it.
local function add_part(left, key, thousandths)
  local name, sum = string.sub(key, 1, -2), (left[key] or 0) + thousandths
  if left[name] then left[name], left[key] = left[name] + math.floor(sum / 1000), sum % 1000 end
end

-- part_text: return the text of an amount with thousandths.
local function part_text(whole, thousandths)
  local sign = ''
  if whole < 0 then sign, whole, thousandths = '-', -whole - 1, 1000 - thousandths end
  local part = string.format('%03d', thousandths)
  local digits = string.sub(part, 2) == '00' and 1 or string.sub(part, 3) == '0' and 2 or 3
  return string.format('%s%d.%s', sign, whole, string.sub(part, 1, digits))
end

-- size_text: return the text of an amount of what is left.
local function size_text(left, name)
  local part = left[name .. '.'] or 0
  return part > 0 and part_text(left[name], part) or string.format('%d', left[name])
end

-- undeclared: return how much a node has of an amount that it does not declare: 1 of a word of `apart` (model/apart.py).
local function undeclared(name) return string.sub(name, 1, 6) == 'apart_' and 1 or 0 end

-- is_enough: return whether every amount that is asked for is there.
local function is_enough(there, asked)
  for name, amount in pairs(asked) do
    if (there[name] or undeclared(name)) < amount and not (PARTS[name] and in_full().part_fits(there, asked, name)) then
      return false
    end
  end
  return true
end
