-- Room: how many tasks of a kind may be taken now, by the ceilings of all its accounts.
-- A rate is judged by the generic cell rate algorithm (ITU-T I.371): each unit takes an interval of
-- PERIOD / NUMBER ms, `next` is the end of the intervals taken, and `burst` intervals may lie ahead
-- of the clock.
--- @include kind/ceilings

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
  if room > 0 and account.allowed then
    for word, allowed in pairs(account.allowed) do
      local each = asked[word] or 0
      if each > 0 then
        room = math.min(room, math.floor((allowed - (account.held[word] or 0)) / each + 1e-6))
      end
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
  local shares = shares_of(kind)
  for i = 1, #shares do
    local share = shares[i]
    local account = account_of(share.name)
    local is_judged = account.allowed or account.is_unread or share.asked.units
    if is_judged and not share.is_open then -- a tenant without a ceiling has room
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
