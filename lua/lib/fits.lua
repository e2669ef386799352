-- Judge what fits, for scripts. Needs and offers are the same text: 'slots=2 gpu=1 mem=4096 gpu_model:a100', where NAME=N is an
-- amount and NAME:VALUE a label. In needs VALUE may be a condition (lib/conditions.lua). placement/fits.py does the same for the
-- view; a property test compares the two.
--- @include conditions
--- @include taints
--- @include thousandths

local SOUND, NEEDED, FITTING = {}, {}, {} -- answers in this call: most tasks of a call need the same, most nodes offer the same

-- is_rare: return whether a word is an amount with decimals or, in needs, a label with a condition.
local function is_rare(word, of_needs)
  local amount = string.match(word, '^%l[%l%d_]*=%-?(.+)$')
  if amount then return is_part(amount) end
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

-- amounts: return {name -> number} of the NAME=N words of a text; lib/thousandths.lua says what those with decimals are.
local function amounts(text)
  local found = {}
  for name, amount in string.gmatch(text, '%f[!-~](%l[%l%d_]*)=(%-?[%d.]+)') do
    local number = tonumber(amount)
    if number and number % 1 == 0 then found[name] = number else in_full().set_part(found, name, amount) end
  end
  return found
end

-- undeclared: return how much a node has of an amount that it does not declare: 1 of a word that keeps tasks apart (model/apart.py).
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

-- The rules, in the order of parsync_redis/placement/rules, here and in what is included: each returns whether a node that offers
-- `offer` passes. `slots` is an amount here.
local function amounts_fit(offer, needs) return is_enough(amounts(offer), amounts(needs)) end

-- fits: return whether a node that offers `offer` can hold a task that needs `needs`.
local function fits(offer, needs)
  local known = FITTING[needs] or {}
  FITTING[needs] = known
  if known[offer] == nil then
    known[offer] = #offer <= 65536 and amounts_fit(offer, needs) and labels_fit(offer, needs) and taints_fit(offer, needs)
  end
  return known[offer]
end
