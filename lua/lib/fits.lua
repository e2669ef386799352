-- What fits, for scripts. Needs and offers are the same text: 'slots=2 gpu=1 mem=4096 gpu_model:a100', where NAME=N is an
-- amount and NAME:VALUE a label. placement/fits.py says the same for the view; a property test holds the two together.

-- amounts: {name -> number} of the NAME=N words of a text.
local function amounts(text)
  local found = {}
  for name, amount in string.gmatch(text, '(%S-)=(%-?%d+)') do found[name] = tonumber(amount) end
  return found
end

-- amounts_fit: whether every amount asked for is offered.
local function amounts_fit(offered, asked)
  for name, amount in pairs(asked) do
    if (offered[name] or 0) < amount then return false end
  end
  return true
end

-- fits: whether a node that offers `offer` can hold a task that needs `needs`.
local function fits(offer, needs)
  if not amounts_fit(amounts(offer), amounts(needs)) then return false end
  local padded = ' ' .. offer .. ' '
  for label in string.gmatch(needs, '%S+:%S+') do
    if not string.find(padded, ' ' .. label .. ' ', 1, true) then return false end
  end
  return true
end
