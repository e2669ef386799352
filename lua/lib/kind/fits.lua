-- Judge what fits. Needs and offers are the same text: 'slots=2 gpu=1 mem=4096 gpu_model:a100',
-- where NAME=N is an amount and NAME:VALUE a label. In needs VALUE may be a condition
-- (lib/kind/conditions.lua). placement/fits.py does the same for the view; a property test compares
-- the two.
--- @include kind/conditions
--- @include place/amounts_held
--- @include kind/taints
--- @include node/thousandths

-- Answers that this call has found: most tasks of a call need the same, most nodes offer the same.
local SOUND = {} -- text -> whether it has only words of amounts and labels
local NEEDED = {} -- needs -> the amounts {name -> number}
local FITTING = {} -- needs -> {offer -> whether the offer fits}

-- is_rare_word: return whether a word is an amount with decimals, an amount of devices or, in
-- needs, a label with a condition.
local function is_rare_word(word, of_needs)
  local name, amount = string.match(word, '^(%l[%l%d_.@]*)=%-?([%d.]+)$')
  if name then
    if not string.find(name, '^[%l%d_]*$') and not is_of_devices(name, of_needs) then
      return false
    end
    return is_part(amount) or #amount < 17 and string.find(amount, '^%d+$') ~= nil
  end
  local condition = of_needs and string.match(word, '^%a[%w_.-]*:(.+)$')
  return condition and is_condition(condition) or false
end

-- has_only_words: return whether a text has only words of amounts and labels. of_needs: labels may
-- have conditions.
local function has_only_words(text, of_needs)
  if #text > 65536 or string.find(text, '[^ -~]') then
    return false
  end
  for word in string.gmatch(text, '%S+') do
    local amount = string.match(word, '^%l[%l%d_]*=%-?(%d+)$')
    if not (amount and #amount < 17) and not string.find(word, '^%a[%w_.-]*:[%w_./%%-]+$') then
      if not in_full().is_rare_word(word, of_needs) then
        return false
      end
    end
  end
  return true
end

-- well_formed: return whether a text has only words NAME=N and NAME:VALUE, as offers and ledgers
-- have.
local function well_formed(text)
  if SOUND[text] == nil then
    SOUND[text] = has_only_words(text)
  end
  return SOUND[text]
end

-- are_needs: return whether a text has only words NAME=N and NAME:CONDITION.
local function are_needs(text)
  if NEEDED[text] == nil then
    NEEDED[text] = has_only_words(text, true)
  end
  return NEEDED[text]
end

-- amounts: return {name -> number} of the words NAME=N of a text. lib/node/thousandths.lua says how
-- amounts with decimals are kept.
local function amounts(text)
  local numbers = {}
  for name, amount in string.gmatch(text, '%f[!-~](%l[%l%d_.@]*)=(%-?[%d.]+)') do
    local number = tonumber(amount)
    if number and number % 1 == 0 then
      numbers[name] = number
    else
      in_full().set_part(numbers, name, amount)
    end
  end
  return numbers
end

-- A rule is a function NAME_fits(offer, needs). It returns whether a node that offers `offer` may
-- take a task that needs `needs`. The rules stand here and in the included libraries, in the order
-- of parsync_redis/placement/rules.

-- amounts_fit: a rule: the node has the amounts. `slots` is an amount here.
local function amounts_fit(offer, needs)
  local offered = amounts(offer)
  local needed = amounts(needs)
  if is_enough(offered, needed) then
    return true
  end
  return string.find(offer, '@', 1, true) ~= nil and in_full().hold(offered, needed) ~= nil
end

-- protection_fits: a rule: the task asks for some of the node's devices, if the node has devices
-- and does not share them.
local function protection_fits(offer, needs)
  if not string.find(offer, '@', 1, true) then
    return true
  end
  if string.find(offer .. ' ', ' parsync.devices:shared ', 1, true) then
    return true
  end
  return in_full().asks_device(amounts(offer), amounts(needs))
end

-- fits: return whether a node that offers `offer` can hold a task that needs `needs`.
local function fits(offer, needs)
  local answers = FITTING[needs] or {}
  FITTING[needs] = answers
  if answers[offer] == nil then
    answers[offer] = #offer <= 65536
      and amounts_fit(offer, needs)
      and labels_fit(offer, needs)
      and taints_fit(offer, needs)
      and protection_fits(offer, needs)
  end
  return answers[offer]
end
