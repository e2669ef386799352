-- The line of an account in `accounts`, and its fields; see lib/kind/accounts.lua.
-- parse_words: put a line of several amounts or with marks into the fields of an account. With a
-- word that cannot be read the line is damaged, and that of a limit with fewer units than holders.
local function parse_words(name, account, line)
  local count, words = string.match(line, '^n=(%d+)(.*)$')
  if not count or #count > 15 or #words > 4000 then
    account.count = nil
    return
  end
  local is_full = string.sub(words, -5) == ' full'
  for word in string.gmatch(is_full and string.sub(words, 1, -6) or words, '[^ ]+') do
    local amount_name, amount = string.match(word, '^(%l[%l%d_.]*)=(%d[%d.]*)$')
    amount = tonumber(amount)
    if not amount then
      account.count = nil
      return
    end
    account.held[amount_name] = amount
  end
  local units = string.byte(name) == 64 and math.huge or account.held.units or 0 -- '@'
  account.count = units >= tonumber(count) and tonumber(count) or nil
  account.next = account.held.next
  account.held.next = nil
  account.full = is_full
  account.is_shut = is_full and account.count == 0
end

-- parse_account: put the line of an account into its fields; false stands for no line.
local function parse_account(name, account, line)
  account.is_read = true
  account.held = {}
  if not line then
    return
  end
  local count, word, amount = string.match(line, '^n=(%d+) (%l+)=(%d+)$')
  local is_usual = count and #count < 16 and #amount < 16 and word ~= 'next'
  if is_usual and string.byte(name) ~= 64 then -- '@'
    is_usual = word == 'units' and tonumber(amount) >= tonumber(count)
  end
  if is_usual then
    account.count = tonumber(count)
    account.held[word] = tonumber(amount)
  else
    parse_words(name, account, line)
  end
end

-- number_text: return an amount as text, with three decimals at most.
local function number_text(amount)
  return string.format(amount % 1 == 0 and '%d' or '%.16g', amount)
end

-- account_text: return the line of an account without the mark `full`.
local function account_text(account)
  local amounts_held = account.held
  local name, amount = next(amounts_held)
  local is_short = name and not next(amounts_held, name) and not account.next
  if is_short and amount > 0 and amount % 1 == 0 then
    return string.format('n=%d %s=%d', account.count, name, amount)
  end
  local names = {}
  for word in pairs(amounts_held) do
    if word ~= 'slots' and word ~= 'units' then
      names[#names + 1] = word
    end
  end
  table.sort(names)
  local words = {string.format('n=%d', account.count)}
  for _, word in ipairs({'slots', 'units', unpack(names)}) do
    local number = amounts_held[word] or 0
    words[#words + 1] = number > 0 and word .. '=' .. number_text(number) or nil
  end
  words[#words + 1] = account.next and string.format('next=%.3f', account.next) or nil
  return table.concat(words, ' ')
end
