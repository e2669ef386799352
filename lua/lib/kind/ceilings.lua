-- Ceilings: what the holders of an account may hold at most, and how often tasks may start. The
-- hash `policy` has them by account, or by a pattern with '*' in the place of the last part:
--   slots=200 gpu=4                     the tenant @research
--   units=5 rate=100/60000 burst=10     the limit customer:*
-- A limit without an entry has room for nothing; a tenant without one has no ceiling.
-- A rate is judged by the generic cell rate algorithm (ITU-T I.371): each unit takes an interval of
-- PERIOD / NUMBER ms, `next` is the end of the intervals taken, and `burst` intervals may lie ahead
-- of the clock.
--- @include kind/accounts
--- @include kind/allotments

-- pattern_of: return the entry that counts for an account without an entry of its own. An account
-- without such an entry gets its own name.
local function pattern_of(name)
  if string.byte(name) == 64 then -- '@'
    local parent = string.match(name, '^(.*/)[^/]*$')
    return (parent or '@') .. '*'
  end
  local head = string.match(name, '^([^:]*:)')
  return head and head .. '*' or name
end

-- read_ceilings: read the accounts of these names, their ceilings and their allotments. In a key
-- of another type every account is damaged.
local function read_ceilings(names)
  read_accounts(names)
  local fields = {}
  for _, name in ipairs(names) do
    if not account_of(name).ceiling_text and not fields[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = pattern_of(name)
      fields[name] = true
    end
  end
  for from = 1, #fields, 1000 do
    local to = math.min(from + 999, #fields)
    local texts = redis.pcall('HMGET', KEY.policy, unpack(fields, from, to))
    for i = from, to, 2 do
      local account = account_of(fields[i])
      parse_ceiling(account, not texts.err and (texts[i - from + 1] or texts[i - from + 2]))
      account.is_unread = account.is_unread or texts.err
      account.count = not account.is_unread and account.count or nil
    end
  end
  read_allotments(fields)
end

-- read_accounts_of: read the accounts to which tasks of these kinds count, and their ceilings.
local function read_accounts_of(kinds_asked)
  local names = {}
  for _, kind in ipairs(kinds_asked) do
    for _, share in ipairs(shares_of(kind)) do
      names[#names + 1] = share.name
    end
  end
  read_ceilings(names)
end

-- check_holders: judge an account whose line and whose holders differ in number as damaged. A take
-- writes 'doubtful' into such a line, so that the leader's next look finds it.
local function check_holders(name)
  local account = account_of(name)
  if account.is_checked then
    return
  end
  account.is_checked = true
  local size = redis.pcall('ZCARD', KEY.holders .. name)
  if account.count and size ~= account.count then
    account.count = nil
    account.is_doubtful = true
  end
end

-- tokens_of: return how many units of a rate may start now.
local function tokens_of(account)
  local ahead = math.max((account.next or 0) - now_ms(), 0)
  return math.floor(account.burst - ahead / account.interval + 1e-6)
end

-- mark_full: let the account be written as full: it has refused tasks.
local function mark_full(name, account)
  if account.count and not account.full then
    account.full = true
    touch_account(name)
  end
end

-- room_in: return for how many tasks, each of which holds `asked`, an account has room, `limit` at
-- most. If the ceiling allows fewer than `limit`, the account is marked as full. A rate marks it
-- only in one of several shards, because the leader may move the rate here.
local function room_in(name, asked, limit)
  local account = account_of(name)
  local room = limit
  if not account.count or not account.allowed and string.byte(name) ~= 64 then
    room = 0
  end
  for word, allowed in pairs(room > 0 and account.allowed or {}) do
    local each = asked[word] or 0
    if each > 0 then
      room = math.min(room, math.floor((allowed - (account.held[word] or 0)) / each + 1e-6))
    end
  end
  account.is_shut = account.is_shut or room <= 0
  if room < limit then
    mark_full(name, account)
  end
  if room > 0 and account.interval then
    room = math.min(room, math.floor(tokens_of(account) / asked.units))
    if room < limit and account.is_divided then
      mark_full(name, account)
    end
  end
  return math.max(room, 0)
end

-- room_of: return how many tasks of a kind may be taken, `limit` at most, by each of its accounts.
local function room_of(kind, limit)
  local room = limit
  for _, share in ipairs(shares_of(kind)) do
    local account = account_of(share.name)
    local is_judged = account.allowed or account.is_unread or share.asked.units
    if is_judged then -- a tenant without a ceiling has room
      check_holders(share.name)
      if account.is_doubtful then
        touch_account(share.name)
      end
      room = math.min(room, room_in(share.name, share.asked, limit))
    end
  end
  return room
end

-- start_of: return when (ms) the rates of a kind's limits let its next task start, nil for now.
local function start_of(kind)
  local due
  for _, share in ipairs(shares_of(kind)) do
    local account = account_of(share.name)
    if account.interval and share.asked.units <= account.burst then
      local start = (account.next or 0) - (account.burst - share.asked.units) * account.interval
      if start > tonumber(now_ms()) then
        due = math.max(due or 0, math.ceil(start))
      end
    end
  end
  return due
end

-- due_by_rates: return when the rates let a task of these kinds start, if that is before `due_ms`.
local function due_by_rates(kinds_asked, due_ms)
  for _, kind in ipairs(kinds_asked) do
    local start = start_of(kind)
    if start and start < (tonumber(due_ms) or math.huge) then
      due_ms = string.format('%d', start)
    end
  end
  return due_ms
end
