-- Judge what fits, for scripts. Needs and offers are the same text: 'slots=2 gpu=1 mem=4096 gpu_model:a100', where NAME=N is an
-- amount and NAME:VALUE a label. placement/fits.py does the same for the view; a property test compares the two.

local SOUND, FITTING = {}, {} -- answers in this call: most tasks of a call need the same, most nodes offer the same

local function look(text)
  if #text > 65536 or string.find(text, '[^ -~]') then return false end
  for word in string.gmatch(text, '%S+') do
    local amount = string.match(word, '^%l[%l%d_]*=%-?(%d+)$')
    if not (amount and #amount < 17) and not string.find(word, '^%a[%w_.-]*:[%w_./%%-]+$') then return false end
  end
  return true
end

-- well_formed: return whether a text has only words NAME=N and NAME:VALUE, as needs, offers and ledgers do.
local function well_formed(text)
  if SOUND[text] == nil then SOUND[text] = look(text) end
  return SOUND[text]
end

-- amounts: return {name -> number} of the NAME=N words of a text.
local function amounts(text)
  local found = {}
  for name, amount in string.gmatch(text, '%f[!-~]([^%s=]*)=(%-?%d+)') do found[name] = tonumber(amount) end
  return found
end

-- amounts_fit: return whether every amount asked for is offered.
local function amounts_fit(offered, asked)
  for name, amount in pairs(asked) do
    if (offered[name] or 0) < amount then return false end
  end
  return true
end

local function compare(offer, needs)
  if #offer > 65536 or not amounts_fit(amounts(offer), amounts(needs)) then return false end
  local padded = ' ' .. offer .. ' '
  for label in string.gmatch(needs, '%f[!-~][^%s:]+:%S+') do
    if not string.find(padded, ' ' .. label .. ' ', 1, true) then return false end
  end
  return true
end

-- fits: return whether a node that offers `offer` can hold a task that needs `needs`.
local function fits(offer, needs)
  local known = FITTING[needs] or {}
  FITTING[needs] = known
  if known[offer] == nil then known[offer] = compare(offer, needs) end
  return known[offer]
end
