-- The ledger of a node's resources: the `left` text 'gpu=1 mem=4096', names in order.
--- @include call/batch
--- @include kind/fits

-- ledger_text: return the text of {name -> number}: the amounts left, or those that a task holds.
local function ledger_text(left, held)
  local names, words = {}, {}
  for name in pairs(left) do
    if not (PARTS[name] or not held and left[name] == 1 and undeclared(name) == 1) then names[#names + 1] = name end
  end
  table.sort(names)
  local size = next(PARTS) and in_full().size_text
  for i, name in ipairs(names) do words[i] = name .. '=' .. (size and size(left, name) or string.format('%d', left[name])) end
  return table.concat(words, ' ')
end

-- ledger_add: add `factor` times the amounts of `asked` to what is left; ignore amounts that the node does not declare.
local function ledger_add(left, asked, factor)
  for name, amount in pairs(asked) do
    if PARTS[name] then in_full().add_part(left, name, factor * amount)
    elseif left[name] then left[name] = left[name] + factor * amount
    elseif factor < 0 and undeclared(name) == 1 then left[name] = 1 - amount end
  end
end

local ASKED = {} -- answers in this call: most tasks of a call ask the same
local CHANGED = {} -- name of a node -> its ledger, of those that this call has changed

-- asked_amounts: return {name -> number} of a text of amounts, 'gpu=1 mem=4096'.
local function asked_amounts(asked)
  ASKED[asked] = ASKED[asked] or amounts(asked)
  return ASKED[asked]
end

-- read_ledgers: return {name -> {amount -> number left}} of the nodes in names[1] to names[size], and the list of these nodes. A
-- node with a damaged ledger has false: it stays as it is until it is repaired.
local function read_ledgers(left, names, size)
  local found, distinct = {}, {}
  for i = 1, size do
    local name = names[i]
    if name and found[name] == nil then
      found[name], distinct[#distinct + 1] = false, name
    end
  end
  local texts = read_list(left, distinct)
  for i = 1, #distinct do found[distinct[i]] = not texts[i] and {} or well_formed(texts[i]) and amounts(texts[i]) end
  return found, distinct
end

-- spend: take the amounts in the text of a claim out of a node's ledger; if too little is left, return the ledger's text, else
-- nil and, if the task gets devices, the text of the amounts that it holds.
local function spend(ledgers, name, text)
  local asked, ledger = asked_amounts(string.match(text, ' inc=%d+(.*)$') or ''), ledgers[name]
  local held = ledger and (is_enough(ledger, asked) and asked or in_full().hold(ledger, asked))
  if not held then return ledger_text(ledger or {}) end
  ledger_add(ledger, held, -1)
  CHANGED[name] = ledger
  return nil, held ~= asked and ledger_text(held, true)
end

-- give_back: put the amounts in the text of a place back into a node's ledger.
local function give_back(ledgers, name, text)
  local asked = asked_amounts(string.match(text, '^[^=]*=%d+%f[%D](.*) since=%d+$') or '')
  if not next(asked) then return end
  ledger_add(ledgers[name], asked, 1)
  CHANGED[name] = ledgers[name]
end
