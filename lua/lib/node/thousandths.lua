-- Amounts with decimals, as two whole numbers in a table: 1.25 gpu is gpu = 1 and 'gpu.' = 250, the
-- thousandths from 0 to 999. A negative amount is rounded down: -0.5 gpu is gpu = -1, 'gpu.' = 500.
-- A ledger is such a table: the amounts that a node has left. parsync_redis/model/amount.py
-- computes the same.

local PARTS = {} -- 'gpu.' -> true for each such key that this call has seen

-- is_part: return whether a text is an amount with decimals, '1.25', that ends with no zero.
local function is_part(amount)
  local whole = string.match(amount, '^(%d+)%.%d?%d?[1-9]$')
  return whole ~= nil and #whole < 13
end

-- set_part: set an amount with decimals, '-0.5', in a ledger. Does nothing for a text of another
-- form.
local function set_part(ledger, name, amount)
  local sign, digits, decimals = string.match(amount, '^(%-?)(%d+)%.(%d+)$')
  if not sign then
    return
  end
  local whole = tonumber(digits)
  local thousandths = tonumber(string.sub(decimals .. '00', 1, 3))
  if sign == '-' then
    whole = -whole - 1
    thousandths = 1000 - thousandths
  end
  ledger[name] = whole
  ledger[name .. '.'] = thousandths
  PARTS[name .. '.'] = true
end

-- part_fits: return whether a ledger has enough of an amount with decimals; key: 'gpu.'. The ledger
-- has enough if it has as many thousandths as are asked, or a larger whole number.
local function part_fits(ledger, asked, key)
  local name = string.sub(key, 1, -2)
  return (ledger[key] or 0) >= asked[key] or (ledger[name] or 0) > (asked[name] or 0)
end

-- add_part: add thousandths to an amount of a ledger, if the node declares the amount.
local function add_part(ledger, key, thousandths)
  local name = string.sub(key, 1, -2)
  local sum = (ledger[key] or 0) + thousandths
  if ledger[name] then
    ledger[name] = ledger[name] + math.floor(sum / 1000)
    ledger[key] = sum % 1000
  end
end

-- part_text: return the text of an amount with thousandths.
local function part_text(whole, thousandths)
  local sign = ''
  if whole < 0 then
    sign = '-'
    whole = -whole - 1
    thousandths = 1000 - thousandths
  end
  local decimals = string.format('%03d', thousandths)
  local digits = 3
  if string.sub(decimals, 2) == '00' then
    digits = 1
  elseif string.sub(decimals, 3) == '0' then
    digits = 2
  end
  return string.format('%s%d.%s', sign, whole, string.sub(decimals, 1, digits))
end

-- size_text: return the text of an amount of a ledger.
local function size_text(ledger, name)
  local thousandths = ledger[name .. '.'] or 0
  if thousandths > 0 then
    return part_text(ledger[name], thousandths)
  end
  return string.format('%d', ledger[name])
end

-- undeclared: return how much a node has of an amount that is not in its offer: 1 of 'apart_WORD'
-- (the option `apart` of a task), 0 of any other amount.
local function undeclared(name)
  return string.sub(name, 1, 6) == 'apart_' and 1 or 0
end

-- is_enough: return whether a ledger has every asked amount.
local function is_enough(ledger, asked)
  for name, amount in pairs(asked) do
    if (ledger[name] or undeclared(name)) < amount
        and not (PARTS[name] and in_full().part_fits(ledger, asked, name)) then
      return false
    end
  end
  return true
end
