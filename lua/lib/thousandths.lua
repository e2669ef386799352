-- Amounts with decimals, in tables {name -> whole number}: 'gpu.' has the thousandths of 'gpu', from 0 to 999, if it has any. So
-- no number is a fraction, and -0.5 is -1 and 500. parsync_redis/model/amount.py

-- is_part: return whether a text is the amount of a word, with decimals and without a zero at its end.
local function is_part(amount)
  local whole = string.match(amount, '^(%d+)%.%d?%d?[1-9]$')
  return whole ~= nil and #whole < 17
end

-- add_parts: add the thousandths of a text to its whole numbers.
local function add_parts(text, found)
  for name, sign, whole, part in string.gmatch(text, '(%l[%l%d_]*)=(%-?)(%d+)%.(%d+)') do
    local thousandths = tonumber(string.sub(part .. '00', 1, 3))
    if sign == '' then
      found[name], found[name .. '.'] = tonumber(whole), thousandths
    else
      found[name], found[name .. '.'] = -tonumber(whole) - 1, 1000 - thousandths
    end
  end
  return found
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
  return (string.gsub(string.format('%s%d.%03d', sign, whole, thousandths), '0+$', ''))
end

-- size_text: return the text of an amount; `part`: its thousandths, nil or 0 for none.
local function size_text(whole, part)
  return part and part > 0 and in_full().part_text(whole, part) or string.format('%d', whole)
end
