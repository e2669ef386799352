-- The ledger of a node: the amounts that it has left, in `left` as the text 'gpu=1 mem=4096' with
-- the names in order.
--- @include call/batch
--- @include kind/fits

-- ledger_text: return the text of a ledger {name -> number}, or of the amounts that a task holds.
local function ledger_text(ledger, of_task)
  local names = {}
  local words = {}
  for name in pairs(ledger) do
    local is_whole = not of_task and ledger[name] == 1 and undeclared(name) == 1
    if not (PARTS[name] or is_whole) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  local size = next(PARTS) and in_full().size_text
  for i, name in ipairs(names) do
    local amount = size and size(ledger, name) or string.format('%d', ledger[name])
    words[i] = name .. '=' .. amount
  end
  return table.concat(words, ' ')
end

-- ledger_add: add `factor` times the asked amounts to a ledger. Amounts that the node does not
-- declare are ignored, except the words of `apart` (model/apart.py).
local function ledger_add(ledger, asked, factor)
  for name, amount in pairs(asked) do
    if PARTS[name] then
      in_full().add_part(ledger, name, factor * amount)
    elseif ledger[name] then
      ledger[name] = ledger[name] + factor * amount
    elseif factor < 0 and undeclared(name) == 1 then
      ledger[name] = 1 - amount
    end
  end
end

local ASKED = {} -- text -> its amounts {name -> number}: most tasks of a call ask for the same
local CHANGED = {} -- name of a node -> its ledger, of the ledgers that this call has changed

-- asked_amounts: return the amounts {name -> number} of a text such as 'gpu=1 mem=4096'.
local function asked_amounts(asked)
  ASKED[asked] = ASKED[asked] or amounts(asked)
  return ASKED[asked]
end

-- read_ledgers: read the ledgers of the nodes names[1] to names[size]. Return {name -> ledger} and
-- the list of distinct names. A damaged ledger is false, and stays as it is until it is repaired.
local function read_ledgers(left_key, names, size)
  local ledgers = {}
  local distinct = {}
  for i = 1, size do
    local name = names[i]
    if name and ledgers[name] == nil then
      ledgers[name] = false
      distinct[#distinct + 1] = name
    end
  end
  local texts = read_list(left_key, distinct)
  for i = 1, #distinct do
    local text = texts[i]
    ledgers[distinct[i]] = not text and {} or well_formed(text) and amounts(text)
  end
  return ledgers, distinct
end

-- spend: subtract the amounts in the text of a claim from the ledger of a node.
-- Returns the text of the ledger if too little is left. Else returns nil and, if the task gets
-- devices, the text of the amounts that the task holds.
local function spend(ledgers, name, text)
  local asked = asked_amounts(string.match(text, ' inc=%d+(.*)$') or '')
  local ledger = ledgers[name]
  local amounts_held = ledger
    and (is_enough(ledger, asked) and asked or in_full().hold(ledger, asked))
  if not amounts_held then
    return ledger_text(ledger or {})
  end
  ledger_add(ledger, amounts_held, -1)
  CHANGED[name] = ledger
  return nil, amounts_held ~= asked and ledger_text(amounts_held, true)
end

-- give_back: add the amounts in the text of a place to the ledger of its node.
local function give_back(ledgers, name, text)
  local asked = asked_amounts(string.match(text, '^[^=]*=%d+%f[%D](.*) since=%d+$') or '')
  if not next(asked) then
    return
  end
  ledger_add(ledgers[name], asked, 1)
  CHANGED[name] = ledgers[name]
end

-- look_at_changed: raise an error before the first write if the key `changed` has another type.
local function look_at_changed(changed)
  if next(CHANGED) then
    redis.call('ZCARD', changed)
  end
end

-- write_ledgers: write each changed ledger, and the version of the partition at which it changed.
local function write_ledgers(left_key, changed, version)
  local lines = {}
  local empty = {}
  local versions = {}
  for name, ledger in pairs(CHANGED) do
    local text = ledger_text(ledger)
    versions[#versions + 1] = version
    versions[#versions + 1] = name
    if text == '' then
      empty[#empty + 1] = name
    else
      lines[#lines + 1] = name
      lines[#lines + 1] = text
    end
  end
  write_all('HSET', left_key, lines)
  write_all('HDEL', left_key, empty)
  write_all('ZADD', changed, versions)
end
