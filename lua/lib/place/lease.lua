-- The lease of a slot in the `slots` hash: the text of the place, the same at all slots of a task.
-- The first slot is the lead.
--   a81f 1@17.s1.482913 p0 n1/3,4 inc=3 gpu=1 mem=4096 since=1732161994123
--- @include node/devices

-- is_count: return whether a text is a whole number of at most so many digits.
local function is_count(text, digits)
  return #text <= digits and string.find(text, '^[1-9]%d*$') or text == '0'
end

-- is_amount_name: return whether a text is the name of an amount that a place may have.
local function is_amount_name(text)
  return #text <= 32 and not string.find(text, '[.@]') or in_full().device_name(text) ~= nil
end

-- is_amount: return whether a word is an amount that a place may have, 'mem=4096'.
local function is_amount(word)
  local name, whole, part = string.match(word, '^(%l[%l%d_.@]*)=(%d+)%f[%D](%.?%d*)$')
  if not name or #whole > 16 or not is_amount_name(name) then
    return false
  end
  return part == '' or #whole < 13 and string.find(part, '^%.%d?%d?[1-9]$') ~= nil
end

-- are_amounts: return whether a text is the amounts of a place, each with one space before.
local function are_amounts(text)
  for space, word in string.gmatch(text, '( ?)([^ ]*)') do
    if (space .. word) ~= '' and (space == '' or not is_amount(word)) then
      return false
    end
  end
  return true
end

-- parse_lease: return the lease as a table; nil for no lease and for any other text. model/place.py
-- reads the same.
local function parse_lease(text)
  if text and #text > 131072 then
    return nil -- a place of 10,000 slots has less than half as many bytes
  end
  local task, attempt, partition, behind =
    string.match(text or '', '^([%w%%][%w%%_.:@+-]*) (%d+@[!-~]+) p(%d+) ()')
  if not task or #task > 3060 or #attempt > 300 or #string.match(attempt, '^%d+') > 9 then
    return nil
  end
  local name, slots, inc, asked, since =
    string.match(text, '^(%w[%w_.@-]*)/([%d,]+) inc=(%d+)%f[%D](.*) since=(%d+)$', behind)
  if not name or #name > 128 or not are_amounts(asked) then
    return nil
  end
  if not (is_count(partition, 4) and is_count(inc, 15) and is_count(since, 15)) then
    return nil
  end
  return {
    task = task,
    attempt = attempt,
    partition = partition,
    name = name,
    slots = slots,
    inc = inc,
    asked = asked,
    lead = tonumber(string.match(slots, '^%d+')) or -1,
  }
end

-- place_slots: return the slots in the text of a place, '3,4'.
local function place_slots(text)
  return string.match(text, ' p%d+ [^ /]+/([%d,]+) inc=') or ''
end

-- agrees: return whether every slot that a lease names has this text, and the lease names no slot
-- twice. texts: {slot, as text -> text}.
local function agrees(texts, lease, text)
  local numbers = {}
  for number in string.gmatch(',' .. lease.slots, ',([^,]*)') do
    if numbers[number] or not is_count(number, 4) or texts[number] ~= text then
      return false
    end
    numbers[number] = true
  end
  return true
end

-- task_at: return the task that the text of a place names; nil for any other text.
local function task_at(text)
  local lease = parse_lease(text)
  if not lease then
    return nil
  end
  local texts = {}
  for number in string.gmatch(lease.slots, '[^,]+') do
    texts[number] = text
  end
  return agrees(texts, lease, text) and lease.task or nil
end

-- has_amounts: return whether the text of a place has amounts: a word with '=' besides inc=N and
-- since=MS.
local function has_amounts(text)
  local first = string.find(text, '=', 1, true)
  local second = first and string.find(text, '=', first + 1, true)
  return second and string.find(text, '=', second + 1, true)
end
