-- Judge what fits, for scripts. Needs and offers are the same text: 'slots=2 gpu=1 mem=4096 gpu_model:a100', where NAME=N is an
-- amount and NAME:VALUE a label. In needs VALUE may be a condition (lib/kind/conditions.lua). placement/fits.py does the
-- same for the view; a property test compares the two.
--- @include kind/conditions
--- @include place/amounts_held
--- @include kind/taints
--- @include node/thousandths

local SOUND, NEEDED, FITTING = {}, {}, {} -- answers in this call: most tasks of a call need the same, most nodes offer the same

-- is_rare: return whether a word is an amount with decimals or of devices or, in needs, a label with a condition.
local function is_rare(word, of_needs)
  local name, amount = string.match(word, '^(%l[%l%d_.@]*)=%-?([%d.]+)$')
  if name then
    local sound = string.find(name, '^[%l%d_]*$') or is_of_devices(name, of_needs)
    return sound and (is_part(amount) or #amount < 17 and string.find(amount, '^%d+$') ~= nil)
  end
  local condition = of_needs and string.match(word, '^%a[%w_.-]*:(.+)$')
  return condition and is_condition(condition) or false
end

-- look: return whether a text has only words of amounts and labels; `of_needs`: conditions on labels as well.
local function look(text, of_needs)
  if #text > 65536 or string.find(text, '[^ -~]') then return false end
  for word in string.gmatch(text, '%S+') do
    local amount = string.match(word, '^%l[%l%d_]*=%-?(%d+)$')
    if not (amount and #amount < 17) and not string.find(word, '^%a[%w_.-]*:[%w_./%%-]+$') then
      if not in_full().is_rare(word, of_needs) then return false end
    end
  end
  return true
end

-- well_formed: return whether a text has only words NAME=N and NAME:VALUE, as offers and ledgers do.
local function well_formed(text)
  if SOUND[text] == nil then SOUND[text] = look(text) end
  return SOUND[text]
end

-- are_needs: return whether a text has only words NAME=N and NAME:CONDITION.
local function are_needs(text)
  if NEEDED[text] == nil then NEEDED[text] = look(text, true) end
  return NEEDED[text]
end

-- amounts: return {name -> number} of the NAME=N words of a text; lib/node/thousandths.lua says what those with decimals are.
local function amounts(text)
  local found = {}
  for name, amount in string.gmatch(text, '%f[!-~](%l[%l%d_.@]*)=(%-?[%d.]+)') do
    local number = tonumber(amount)
    if number and number % 1 == 0 then found[name] = number else in_full().set_part(found, name, amount) end
  end
  return found
end

-- The rules, in the order of parsync_redis/placement/rules, here and in what is included: each returns whether a node that offers
-- `offer` passes. `slots` is an amount here.
local function amounts_fit(offer, needs)
  local there, asked = amounts(offer), amounts(needs)
  return is_enough(there, asked) or string.find(offer, '@', 1, true) ~= nil and in_full().hold(there, asked) ~= nil
end

-- protection_fits: a rule: the task asks for some of the node's devices, if it has any and does not share them.
local function protection_fits(offer, needs)
  if not string.find(offer, '@', 1, true) or string.find(offer .. ' ', ' parsync.devices:shared ', 1, true) then return true end
  return in_full().asks_device(amounts(offer), amounts(needs))
end

-- fits: return whether a node that offers `offer` can hold a task that needs `needs`.
local function fits(offer, needs)
  local known = FITTING[needs] or {}
  FITTING[needs] = known
  if known[offer] == nil then
    known[offer] = #offer <= 65536 and amounts_fit(offer, needs) and labels_fit(offer, needs) and taints_fit(offer, needs) and
      protection_fits(offer, needs)
  end
  return known[offer]
end
