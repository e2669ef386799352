-- The ledger of a node's resources: the `left` text 'gpu=1 mem=4096', names in order. Needs lib/fits.lua.
--- @include fits

-- ledger_text: return the text of {name -> number}.
local function ledger_text(left)
  local names, words = {}, {}
  for name in pairs(left) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do words[i] = name .. '=' .. string.format('%.0f', left[name]) end
  return table.concat(words, ' ')
end

-- ledger_add: add `factor` times the amounts of `asked` to what is left; ignore amounts that the node does not declare.
local function ledger_add(left, asked, factor)
  for name, amount in pairs(asked) do
    if left[name] then left[name] = left[name] + factor * amount end
  end
end

local ASKED = {} -- answers in this call: most tasks of a call need the same

-- asked_amounts: return {name -> number} of what `needs` asks for besides slots, and the text of a lease: 'gpu=1', or ''.
local function asked_amounts(needs)
  if not ASKED[needs] then
    local asked = amounts(needs)
    asked.slots = nil
    ASKED[needs] = {asked, ledger_text(asked)}
  end
  return unpack(ASKED[needs])
end
