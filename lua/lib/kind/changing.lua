-- Write what a call has changed in accounts (lib/kind/accounts.lua), and tell of accounts.
--- @include kind/accounts
--- @include kind/allotments
--- @include kind/ceilings
--- @include kind/index
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

-- count_taken: let taken tasks of a kind count to their accounts. ids: {id, any, ...}, from place
-- `first` on.
local function count_taken(kind, ids, first)
  local size = math.ceil((#ids - first + 1) / 2)
  if size == 0 then
    return
  end
  local now = tonumber(now_ms())
  for _, share in ipairs(shares_of(kind)) do
    local account = touch_account(share.name)
    for i = first, #ids, 2 do
      account.entering[#account.entering + 1] = now
      account.entering[#account.entering + 1] = ids[i]
    end
    if account.count then -- a tenant without a ceiling may have a damaged line
      account.count = account.count + size
      add_amounts(account, share.asked, size)
    end
    if account.interval then
      local units = size * share.asked.units
      account.next = math.max(account.next or 0, now) + units * account.interval
    end
  end
end

-- remove_leaving: take the tasks that leave out of the holders of an account. Only a task that was
-- a holder counts, so a repeated call changes nothing.
local function remove_leaving(name, account)
  for _, leaving in ipairs(account.leaving) do
    for from = 1, #leaving.ids, 1000 do
      local to = math.min(from + 999, #leaving.ids)
      local removed = redis.pcall('ZREM', KEY.holders .. name, unpack(leaving.ids, from, to))
      if account.count and type(removed) == 'number' and removed > 0 then
        account.count = math.max(0, account.count - removed)
        add_amounts(account, leaving.asked, -removed)
        HAS_ROOM = HAS_ROOM or account.full
        account.full = false
      end
    end
  end
  account.leaving = {}
  if account.returned > 0 and account.next then
    read_ceilings({name})
    account.next = account.next - account.returned * (account.least_interval or 0)
    account.returned = 0
  end
end

-- list_accounts: put the accounts that this call changes into TOUCHED, by name; return the names.
local function list_accounts()
  local names = {}
  for name, account in pairs(ACCOUNTS) do
    names[#names + 1] = account.is_touched and name or nil
  end
  table.sort(names)
  for _, name in ipairs(names) do
    if not ACCOUNTS[name].is_listed then
      ACCOUNTS[name].is_listed = true
      TOUCHED[#TOUCHED + 1] = '=' .. name
    end
  end
  return names
end

-- write_accounts: write the accounts that this call has touched.
local function write_accounts()
  local names = list_accounts()
  read_accounts(names)
  local lines = {}
  local emptied = {}
  for _, name in ipairs(names) do
    local account = ACCOUNTS[name]
    remove_leaving(name, account)
    local is_waited_for = account.full and (account.is_shut or account.is_divided)
    local has_rate_used = (account.next or 0) > tonumber(now_ms())
    if account.count == 0 and not is_waited_for and not has_rate_used then
      account.full = false
      emptied[#emptied + 1] = name
    elseif account.is_doubtful then
      lines[#lines + 1] = name
      lines[#lines + 1] = 'doubtful'
    elseif account.count then
      lines[#lines + 1] = name
      lines[#lines + 1] = account_text(account) .. (account.full and ' full' or '')
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
  for _, kind in ipairs(kinds_asked) do
    for _, share in ipairs(shares_of(kind)) do
      local account = account_of(share.name)
      if not account.is_told then
        account.is_told = true
        changes[#changes + 1] = '=' .. share.name
        changes[#changes + 1] = account_line(share.name)
      end
    end
  end
  return due_by_rates(kinds_asked, due_ms)
end

-- put_account_lines: put the lines of accounts into the changes of a take's reply.
local function put_account_lines(changes)
  local names = {}
  for i = 1, #changes, 2 do
    names[#names + 1] = string.match(changes[i], '^=(%S+)$')
  end
  read_ceilings(names)
  for i = 1, #changes, 2 do
    local name = string.match(changes[i], '^=(%S+)$')
    if name then
      changes[i + 1] = account_line(name)
    end
  end
end
