-- Accounts: what tasks count to from their take until they end or go back. The account of a tenant
-- is '@research', that of a limit 'stripe'; see parsync_redis/model/account.py. The hash `accounts`
-- has a line for each account with holders: their number, what they hold, and marks.
--   n=3 slots=12 gpu=3                         a tenant
--   n=3 units=4 next=1732161994123.250 full    a limit
-- next: until when (ms) its rate is used up, see lib/kind/ceilings.lua
-- full: a take has refused tasks because of the account, or was asked for no task and has found no
--   room for one: when holders leave, a scheduler is woken.
--   A line without holders is there only if no task has room: set_policy tells schedulers of it
-- The zset `holders:ACCOUNT` has the ids of the tasks, by the time (ms) since which each counts.
-- A damaged line stays as it is, and its account has room for nothing, until `recount` writes the
-- line anew. A script calls leave_accounts or count_taken for its tasks; write_changes
-- (lib/kind/changing.lua) writes what it has changed.
--- @include call/batch
--- @include call/clock
--- @include kind/waiting
--- @include task/line
local ACCOUNTS = {} -- name -> account, a table with the fields below
local ARE_READABLE = true -- false if `accounts` is a key of another type
local NOT_COUNTED = {next = true, units = true, shards = true, rate = true, burst = true}
local SHARES = {} -- kind -> {{name = of an account, asked = what one task holds}, ...}

-- The fields of an account:
--   is_read, is_touched, is_listed: whether this call has read the line, changes the account, and
--     has put the account into TOUCHED
--   count, held: the number of holders, and {name of an amount -> number}; nil for a damaged line
--   next, full: the marks; nil or false without one
--   is_shut: whether a take found room for no task
--   entering: {ms, id, ...} of the tasks that enter
--   leaving: {{asked = what one task holds, ids = {...}}, ...} of the tasks that leave
--   returned: how many units were not used, because their takes are undone

-- amounts_asked: return {name -> number} of the amounts in needs. The words of `apart` are no
-- amounts of a tenant, nor are words that mean something else in a line or a ceiling.
local function amounts_asked(needs)
  local asked = {}
  for name, amount in string.gmatch(needs, '%f[!-~](%l[%l%d_.]*)=(%d+%.?%d*)') do
    if string.sub(name, 1, 6) ~= 'apart_' and not NOT_COUNTED[name] then
      asked[name] = tonumber(amount)
    end
  end
  return asked
end

-- shares_of: return which accounts a task of a kind counts to, tenants from the root down, and what
-- the task holds of each.
local function shares_of(kind)
  local shares = SHARES[kind]
  if shares then
    return shares
  end
  shares = {}
  local needs, tenant, limits = split_accounts(kind)
  local asked = tenant and amounts_asked(needs)
  local path
  for word in string.gmatch(tenant or '', '[^/]+') do
    path = path and path .. '/' .. word or '@' .. word
    shares[#shares + 1] = {name = path, asked = asked}
  end
  for name, units in string.gmatch(limits or '', '([^,*]+)%*?(%d*)') do
    shares[#shares + 1] = {name = name, asked = {units = tonumber(units) or 1}}
  end
  SHARES[kind] = shares
  return shares
end

-- account_of: return the account of a name, which this call may not have read.
local function account_of(name)
  local account = ACCOUNTS[name]
  if not account then
    account = {entering = {}, leaving = {}, returned = 0}
    ACCOUNTS[name] = account
  end
  return account
end

-- parse_account: put the line of an account into its fields; false stands for no line. With a word
-- that cannot be read the line is damaged, and that of a limit with fewer units than holders.
local function parse_account(name, account, line)
  account.is_read = true
  account.held = {}
  local count, words = string.match(line or 'n=0', '^n=(%d+)(.*)$')
  if not count or #count > 15 or #words > 4000 then
    return
  end
  local is_full = string.sub(words, -5) == ' full'
  for word in string.gmatch(is_full and string.sub(words, 1, -6) or words, '[^ ]+') do
    local amount_name, amount = string.match(word, '^(%l[%l%d_.]*)=(%d+%.?%d*)$')
    if not amount_name then
      return
    end
    account.held[amount_name] = tonumber(amount)
  end
  local units = string.byte(name) == 64 and math.huge or account.held.units or 0 -- '@'
  account.count = units >= tonumber(count) and tonumber(count) or nil
  account.next = account.held.next
  account.held.next = nil
  account.full = is_full
  account.is_shut = is_full and account.count == 0
end

-- number_text: return an amount as text, with three decimals at most.
local function number_text(amount)
  return string.format(amount % 1 == 0 and '%d' or '%.16g', amount)
end

-- account_text: return the line of an account without the mark `full`.
local function account_text(account)
  local names = {}
  for name in pairs(account.held) do
    if name ~= 'slots' and name ~= 'units' then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  local words = {string.format('n=%d', account.count)}
  for _, name in ipairs({'slots', 'units', unpack(names)}) do
    local amount = account.held[name] or 0
    words[#words + 1] = amount > 0 and name .. '=' .. number_text(amount) or nil
  end
  words[#words + 1] = account.next and string.format('next=%.3f', account.next) or nil
  return table.concat(words, ' ')
end

-- read_accounts: read the lines of these accounts, as far as this call has not read them. In a key
-- of another type every line is damaged.
local function read_accounts(names)
  local unread = {}
  for _, name in ipairs(names) do
    if not account_of(name).is_read then
      unread[#unread + 1] = name
    end
  end
  for from = 1, #unread, 1000 do
    local to = math.min(from + 999, #unread)
    local lines = redis.pcall('HMGET', KEY.accounts, unpack(unread, from, to))
    ARE_READABLE = ARE_READABLE and not lines.err
    for i = from, to do
      parse_account(unread[i], account_of(unread[i]), lines.err and '' or lines[i - from + 1])
    end
  end
end

-- touch_account: let write_changes write an account; return the account.
local function touch_account(name)
  local account = account_of(name)
  account.is_touched = true
  return account
end

-- leave_accounts: take tasks of a kind out of their accounts. ids: a list; undone: whether their
-- takes are undone, so that a rate gets their units back.
local function leave_accounts(kind, ids, undone)
  for _, share in ipairs(shares_of(kind)) do
    local account = touch_account(share.name)
    account.leaving[#account.leaving + 1] = {asked = share.asked, ids = ids}
    if undone then
      account.returned = account.returned + #ids * (share.asked.units or 0)
    end
  end
end
