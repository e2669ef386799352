-- The ledger of a node's resources: the `left` text 'gpu=1 mem=4096', names in order. Needs lib/fits.lua.
--- @include fits

-- ledger_text: the text of {name -> number}.
local function ledger_text(left)
  local names, words = {}, {}
  for name in pairs(left) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do words[i] = name .. '=' .. string.format('%.0f', left[name]) end
  return table.concat(words, ' ')
end

-- ledger_add: adds `factor` times the amounts of `asked` to what is left; amounts that the node does not declare are ignored.
local function ledger_add(left, asked, factor)
  for name, amount in pairs(asked) do
    if left[name] then left[name] = left[name] + factor * amount end
  end
end

local WISHES = {} -- what this call has found: most tasks of a call need the same

-- wish: {name -> number} of what `needs` asks for besides slots, and how a lease says it: 'gpu=1', or ''.
local function wish(needs)
  if not WISHES[needs] then
    local asked = amounts(needs)
    asked.slots = nil
    WISHES[needs] = {asked, ledger_text(asked)}
  end
  return unpack(WISHES[needs])
end
