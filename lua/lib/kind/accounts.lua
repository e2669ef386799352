-- Accounts: what tasks count to from their take until they end or go back. The account of a tenant
-- is '@research', that of a limit 'stripe'; see parsync_redis/model/account.py. The hash `accounts`
-- has a line for each account with holders: their number, what they hold, and marks.
--   n=3 slots=12 gpu=3                         a tenant
--   n=3 units=4 next=1732161994123.250 full    a limit
-- next: until when (ms) its rate is used up, see lib/kind/ceilings.lua
-- full: a take has refused tasks because of the account: when holders leave, a scheduler is woken.
--   A line without holders is there only if no task has room: set_policy tells schedulers of it
-- The zset `holders:ACCOUNT` has the ids of the tasks, by the time (ms) since which each counts.
-- A damaged line stays as it is, and its account has room for nothing, until `recount` writes the
-- line anew. A script calls leave_accounts or count_taken for its tasks; write_changes
-- (lib/kind/changing.lua) writes what it has changed.
--- @include call/batch
--- @include call/clock
--- @include kind/shares
--- @include kind/waiting
local ACCOUNTS = {} -- name -> account, a table with the fields below
local CHANGED_ACCOUNTS = {} -- the accounts that this call changes
local ARE_READABLE = true -- false if `accounts` is a key of another type

-- The fields of an account:
--   is_read, is_touched, is_told: whether this call has read the line, changes the account, and has
--     told of it
--   count, held: the number of holders, and {name of an amount -> number}; nil for a damaged line
--   next, full: the marks; nil or false without one
--   is_shut: whether a take found room for no task
--   entering: {{ms, id, ...}, ...} of the tasks that enter; nil for none
--   leaving: {what one task holds, {id, ...}, ...} of the tasks that leave; nil for none
--   returned: how many units were not used, because their takes are undone
--   text: the line without the mark `full`, once it is written

-- account_of: return the account of a name, which this call may not have read.
local function account_of(name)
  local account = ACCOUNTS[name]
  if not account then
    account = { -- room for sixteen fields: to add one to a full table takes longer
      is_read = false,
      is_touched = false,
      is_told = false,
      count = 0,
      held = false,
      full = false,
      returned = 0,
      text = false,
      ceiling_text = false,
    }
    ACCOUNTS[name] = account
  end
  return account
end

-- parse_words: put a line of several amounts or with marks into the fields of an account.
local function parse_words(account, line)
  local count, words = string.match(line, '^n=(%d+)(.*)$')
  if not count or #count > 15 or #words > 4000 then
    account.count = nil
    return
  end
  account.count = tonumber(count)
  for name, amount in string.gmatch(words, ' (%l[%l%d_.]*)=(%d+%.?%d*)') do
    account.held[name] = tonumber(amount)
  end
  account.next = account.held.next
  account.held.next = nil
  account.full = string.sub(words, -5) == ' full'
  account.is_shut = account.full and account.count == 0
end

-- parse_account: put the line of an account into its fields; false stands for no line.
local function parse_account(account, line)
  account.is_read = true
  account.held = {}
  if not line then
    return
  end
  local count, word, amount = string.match(line, '^n=(%d+) (%l+)=(%d+)$')
  if count and #count < 16 and #amount < 16 and word ~= 'next' then
    account.count = tonumber(count)
    account.held[word] = tonumber(amount)
  else
    parse_words(account, line)
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

-- read_accounts: read the lines of these accounts, as far as this call has not read them. In a key
-- of another type every line is damaged.
local function read_accounts(names)
  local unread = {}
  for i = 1, #names do
    if not account_of(names[i]).is_read then
      unread[#unread + 1] = names[i]
    end
  end
  for from = 1, #unread, 1000 do
    local to = math.min(from + 999, #unread)
    local lines = redis.pcall('HMGET', KEY.accounts, unpack(unread, from, to))
    ARE_READABLE = ARE_READABLE and not lines.err
    for i = from, to do
      parse_account(ACCOUNTS[unread[i]], lines.err and '' or lines[i - from + 1])
    end
  end
end

-- touch_account: let write_changes write an account; return the account.
local function touch_account(name)
  local account = account_of(name)
  if not account.is_touched then
    account.is_touched = true
    CHANGED_ACCOUNTS[#CHANGED_ACCOUNTS + 1] = name
  end
  return account
end

-- leave_accounts: take tasks of a kind out of their accounts. ids: a list; undone: whether their
-- takes are undone, so that a rate gets their units back.
local function leave_accounts(kind, ids, undone)
  local shares = shares_of(kind)
  for i = 1, #shares do
    local share = shares[i]
    local account = touch_account(share.name)
    local leaving = account.leaving or {}
    account.leaving = leaving
    leaving[#leaving + 1] = share.asked
    leaving[#leaving + 1] = ids
    if undone then
      account.returned = account.returned + #ids * (share.asked.units or 0)
    end
  end
end
