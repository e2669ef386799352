-- Judge conditions on labels, for scripts: zone:a|b, gpu_model:!t4, zone:*, vram_gb:>=24. A node's label may have several values.
-- parsync_redis/model/condition.py does the same for the view; a property test compares the two.

local function is_number(text)
  return #text <= 15 and (string.find(text, '^%-?%d+$') or string.find(text, '^%-?%d+%.%d+$')) ~= nil
end

-- sign_of: return the comparison of a condition, nil if it compares no numbers.
local function sign_of(condition)
  local first, second = string.byte(condition, 1, 2)
  if first ~= 60 and first ~= 62 then return nil end
  return string.sub(condition, 1, second == 61 and 2 or 1)
end

-- is_condition: return whether a text is a condition.
local function is_condition(text)
  local sign = sign_of(text)
  if sign then return is_number(string.sub(text, #sign + 1)) end
  local values = string.match(text, '^!?(.*)$')
  if values == '*' then return true end
  return string.find(values, '^[%w_./%%|-]+$') ~= nil and not string.find('|' .. values .. '|', '||', 1, true)
end

-- values_of: return the values of a label in an offer with a space before and behind.
local function values_of(padded, name)
  local found, start, at = {}, ' ' .. name .. ':', 1
  while true do
    local first, last = string.find(padded, start, at, true)
    if not first then return found end
    found[#found + 1] = string.match(padded, '^%S*', last + 1)
    at = last + 1
  end
end

local function compares(sign, a, b)
  if sign == '>=' then return a >= b end
  if sign == '<=' then return a <= b end
  if sign == '>' then return a > b end
  return a < b
end

-- holds: return whether a condition is true of a node whose label has these values.
local function holds(condition, values)
  local sign = sign_of(condition)
  local bound = sign and string.sub(condition, #sign + 1)
  local none, wanted = string.byte(condition) == 33, '|' .. string.match(condition, '^!?(.*)$') .. '|'
  for _, value in ipairs(values) do
    if sign then
      if is_number(value) and compares(sign, tonumber(value), tonumber(bound)) then return true end
    elseif wanted == '|*|' or string.find(wanted, '|' .. value .. '|', 1, true) then
      return not none
    end
  end
  return none
end

-- labels_fit: a rule (lib/kind/fits.lua): the node meets all conditions. Labels `parsync.NAME` have rules of their own.
local function labels_fit(offer, needs)
  local padded = ' ' .. offer .. ' '
  for name, condition in string.gmatch(needs, '%f[!-~]([^%s:]+):(%S+)') do
    if string.sub(name, 1, 8) ~= 'parsync.' and not holds(condition, values_of(padded, name)) then return false end
  end
  return true
end
