-- The ledger of a node's resources: the `left` text 'gpu=1 mem=4096', names in order.
--- @include batch
--- @include fits

-- ledger_text: return the text of {name -> number}.
local function ledger_text(left)
  local names, words = {}, {}
  for name in pairs(left) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do words[i] = name .. '=' .. string.format('%d', left[name]) end
  return table.concat(words, ' ')
end

-- ledger_add: add `factor` times the amounts of `asked` to what is left; ignore amounts that the node does not declare.
local function ledger_add(left, asked, factor)
  for name, amount in pairs(asked) do
    if left[name] then left[name] = left[name] + factor * amount end
  end
end

local ASKED = {} -- answers in this call: most tasks of a call ask the same
local CHANGED = {} -- name of a node -> true, of the ledgers that this call has changed

-- asked_amounts: return {name -> number} of a text of amounts, 'gpu=1 mem=4096'.
local function asked_amounts(asked)
  if not ASKED[asked] then ASKED[asked] = amounts(asked) end
  return ASKED[asked]
end

-- read_ledgers: return {name -> what is left there} of the nodes that names[1] to names[size] name; {} for a node without.
local function read_ledgers(left, names, size)
  local found, distinct = {}, {}
  for i = 1, size do
    local name = names[i]
    if name and not found[name] then
      found[name] = {}
      distinct[#distinct + 1] = name
    end
  end
  for i, text in ipairs(read_list(left, distinct)) do found[distinct[i]] = text and amounts(text) or found[distinct[i]] end
  return found
end

-- spend: take the amounts in the text of a claim out of a node's ledger, or return what is left there: it is too little.
local function spend(ledgers, name, text)
  local asked = asked_amounts(string.match(text, ' inc=%d+(.*)$') or '')
  if not amounts_fit(ledgers[name], asked) then return ledger_text(ledgers[name]) end
  ledger_add(ledgers[name], asked, -1)
  CHANGED[name] = true
end

-- give_back: put the amounts in the text of a place back into a node's ledger.
local function give_back(ledgers, name, text)
  ledger_add(ledgers[name], asked_amounts(string.match(text, ' inc=%d+(.*) since=%d+$') or ''), 1)
  CHANGED[name] = true
end

-- write_ledgers: write the ledgers that have changed.
local function write_ledgers(left, ledgers)
  local lines = {}
  for name in pairs(CHANGED) do
    if next(ledgers[name]) then lines[#lines + 1], lines[#lines + 2] = name, ledger_text(ledgers[name]) end
  end
  write_all('HSET', left, lines)
end
