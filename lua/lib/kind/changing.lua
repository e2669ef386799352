-- Write what a call has changed in accounts (lib/kind/accounts.lua), and tell of accounts.
--- @include kind/accounts
--- @include kind/allotments
--- @include kind/ceilings
--- @include kind/index
--- @include kind/room
local LISTED = 0 -- how many accounts of CHANGED_ACCOUNTS are in TOUCHED
local HAS_ROOM = false -- whether tasks have left an account that was full

-- add_amounts: add `factor` times what one task holds to what an account holds. Thousandths stay
-- exact.
local function add_amounts(account, asked, factor)
  local amounts_held = account.held
  for name, amount in pairs(asked) do
    local sum = (amounts_held[name] or 0) + factor * amount
    amounts_held[name] = math.max(0, sum % 1 == 0 and sum or math.floor(sum * 1000 + 0.5) / 1000)
  end
end

-- is_listed: return whether a task is in the key of an account's holders.
local function is_listed(id, name)
  local since = redis.pcall('ZSCORE', KEY.holders .. name, id)
  return since and type(since) ~= 'table'
end

-- remove_holders: take tasks out of the holders of an account. Only a task that was a holder
-- counts, so a repeated call changes nothing. asked: what one of the tasks holds.
local function remove_holders(name, account, asked, ids)
  for from = 1, #ids, 1000 do
    local to = math.min(from + 999, #ids)
    local removed = redis.pcall('ZREM', KEY.holders .. name, unpack(ids, from, to))
    if account.count and type(removed) == 'number' and removed > 0 then
      account.count = math.max(0, account.count - removed)
      add_amounts(account, asked, -removed)
      HAS_ROOM = HAS_ROOM or account.full
      account.full = false
    end
  end
end

-- remove_leaving: take the tasks that leave out of an account.
local function remove_leaving(name, account)
  local leaving = account.leaving
  for i = 1, #leaving, 2 do
    remove_holders(name, account, leaving[i], leaving[i + 1])
  end
  account.leaving = nil
  if account.returned > 0 and account.next then
    read_ceilings({name})
    account.next = account.next - account.returned * (account.least_interval or 0)
    account.returned = 0
  end
end

-- list_accounts: put the accounts that this call changes into TOUCHED, by name.
local function list_accounts()
  local names = {}
  for i = LISTED + 1, #CHANGED_ACCOUNTS do
    names[#names + 1] = CHANGED_ACCOUNTS[i]
  end
  table.sort(names)
  for _, name in ipairs(names) do
    TOUCHED[#TOUCHED + 1] = '=' .. name
  end
  LISTED = #CHANGED_ACCOUNTS
end

-- write_accounts: write the accounts that this call has touched.
local function write_accounts()
  list_accounts()
  read_accounts(CHANGED_ACCOUNTS)
  local lines = {}
  local emptied = {}
  for i = 1, #CHANGED_ACCOUNTS do
    local name = CHANGED_ACCOUNTS[i]
    local account = ACCOUNTS[name]
    if account.leaving then
      remove_leaving(name, account)
    end
    local is_waited_for = account.full and (account.is_shut or account.is_divided)
    local has_rate_used = account.next and account.next > tonumber(now_ms())
    if account.count == 0 and not is_waited_for and not has_rate_used then
      account.full = false
      emptied[#emptied + 1] = name
    elseif account.is_doubtful then
      lines[#lines + 1] = name
      lines[#lines + 1] = 'doubtful'
    elseif account.count then
      account.text = account_text(account)
      lines[#lines + 1] = name
      lines[#lines + 1] = account.full and account.text .. ' full' or account.text
    end
  end
  if ARE_READABLE then
    write_all('HSET', KEY.accounts, lines)
    write_all('HDEL', KEY.accounts, emptied)
  end
end

-- write_changes: write the accounts and the kinds that this call has changed. Returns whether a
-- scheduler is to be woken: tasks of a new kind wait, or a full account has room.
local function write_changes(meta, kinds, changed)
  if next(ACCOUNTS) then
    counting().write_accounts()
  end
  local has_new_kind = write_kinds(meta, kinds, changed)
  return has_new_kind or HAS_ROOM
end

-- tell_accounts: add ('=ACCOUNT', line) of the accounts of these kinds, each once, to the changes
-- of a take's reply. Return due_ms, or when a rate lets a task of the kinds start if it is sooner.
local function tell_accounts(changes, kinds_asked, due_ms)
  local has_rate = false
  for i = 1, #kinds_asked do
    local shares = shares_of(kinds_asked[i])
    for k = 1, #shares do
      local name = shares[k].name
      local account = ACCOUNTS[name]
      if not account.is_told then
        account.is_told = true
        has_rate = has_rate or account.interval
        changes[#changes + 1] = '=' .. name
        changes[#changes + 1] = account_line(name)
      end
    end
  end
  return has_rate and due_by_rates(kinds_asked, due_ms) or due_ms
end

-- put_account_lines: put the lines of accounts into the changes of a take's reply. places: of the
-- names that begin with '='; the name of a kind may do so, too.
local function put_account_lines(changes, places)
  local names = {}
  for _, place in ipairs(places) do
    names[#names + 1] = string.match(changes[place], '^=(%S+)$')
  end
  read_ceilings(names)
  for _, place in ipairs(places) do
    local name = string.match(changes[place], '^=(%S+)$')
    if name then
      changes[place + 1] = account_line(name)
    end
  end
end
