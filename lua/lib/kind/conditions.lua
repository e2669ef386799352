-- Judge conditions on labels: zone:a|b, gpu_model:!t4, zone:*, vram_gb:>=24. The label of a node
-- may have several values. parsync_redis/model/condition.py does the same for the view; a property
-- test compares the two.

-- is_number: return whether a text is a number, as conditions compare numbers.
local function is_number(text)
  if #text > 15 then
    return false
  end
  return (string.find(text, '^%-?%d+$') or string.find(text, '^%-?%d+%.%d+$')) ~= nil
end

-- sign_of: return the comparison of a condition, '>=', '<=', '>' or '<'; nil for other conditions.
local function sign_of(condition)
  local first, second = string.byte(condition, 1, 2)
  if first ~= 60 and first ~= 62 then -- '<' and '>'
    return nil
  end
  return string.sub(condition, 1, second == 61 and 2 or 1) -- '='
end

-- is_condition: return whether a text is a condition.
local function is_condition(text)
  local sign = sign_of(text)
  if sign then
    return is_number(string.sub(text, #sign + 1))
  end
  local values = string.match(text, '^!?(.*)$')
  if values == '*' then
    return true
  end
  if not string.find(values, '^[%w_./%%|-]+$') then
    return false
  end
  return not string.find('|' .. values .. '|', '||', 1, true)
end

-- values_of: return the values of a label in an offer, which has a space before and behind.
local function values_of(padded_offer, name)
  local values = {}
  local start = ' ' .. name .. ':'
  local from = 1
  while true do
    local first, last = string.find(padded_offer, start, from, true)
    if not first then
      return values
    end
    values[#values + 1] = string.match(padded_offer, '^%S*', last + 1)
    from = last + 1
  end
end

-- compare: return whether a comparison of two numbers is true.
local function compare(sign, number, bound)
  if sign == '>=' then
    return number >= bound
  end
  if sign == '<=' then
    return number <= bound
  end
  if sign == '>' then
    return number > bound
  end
  return number < bound
end

-- is_met: return whether a condition is true of a node whose label has these values.
local function is_met(condition, values)
  local sign = sign_of(condition)
  local bound = sign and tonumber(string.sub(condition, #sign + 1))
  local is_negated = string.byte(condition) == 33 -- '!'
  local alternatives = '|' .. string.match(condition, '^!?(.*)$') .. '|'
  for _, value in ipairs(values) do
    if sign then
      if is_number(value) and compare(sign, tonumber(value), bound) then
        return true
      end
    elseif alternatives == '|*|' or string.find(alternatives, '|' .. value .. '|', 1, true) then
      return not is_negated
    end
  end
  return is_negated
end

-- labels_fit: a rule (lib/kind/fits.lua): the node meets all conditions on labels. Labels
-- `parsync.NAME` have rules of their own.
local function labels_fit(offer, needs)
  local padded_offer = ' ' .. offer .. ' '
  for name, condition in string.gmatch(needs, '%f[!-~]([^%s:]+):(%S+)') do
    if string.sub(name, 1, 8) ~= 'parsync.' then
      if not is_met(condition, values_of(padded_offer, name)) then
        return false
      end
    end
  end
  return true
end
