-- Ceilings and allotments: what an account may hold in this shard.
-- In a queue of several shards each ceiling in `policy` ends with ' shards=N', and the leader gives
-- each shard a part, its *allotment* (verb allot), in the field '=ACCOUNT' of the same hash:
--   units=2          burst=3 units=2          gpu=0.5 slots=20
-- The least of ceiling and allotment counts. What an allotment does not name is 0, so an account
-- without an allotment has room for nothing. The parts of a rate are those of its `burst`: a shard
-- with 3 of 10 may start 3/10 of the units. The field '#seal' changes with each allot.
--- @include kind/accounts

-- allot_rate: give this shard `part` of the burst of a rate, and as much of the rate. Return the
-- words of the ceiling that are about the rate, by name.
local function allot_rate(account, part)
  local number, period = string.match(account.ceiling_text, 'rate=(%d+)/(%d+)')
  local whole = account.burst
  account.burst = math.min(whole, part)
  if account.burst > 0 then
    account.interval = account.interval * whole / account.burst
  end
  local numerator = math.max(1, tonumber(number) * account.burst)
  return {
    rate = string.format('rate=%.0f/%.0f', numerator, tonumber(period) * whole),
    burst = string.format('burst=%d', account.burst),
  }
end

-- apply_allotment: let a divided account have its allotment, or false for none, as the ceiling.
local function apply_allotment(account, text)
  local parts = {}
  text = text and #text <= 4096 and text
  for word, amount in string.gmatch(text or '', '%f[!-~](%l[%l%d_.]*)=(%d+%.?%d*)') do
    parts[word] = tonumber(amount)
  end
  account.allotment = text
  account.whole_text = account.ceiling_text
  local words = account.interval and allot_rate(account, math.floor(parts.burst or 0)) or {}
  for name, amount in pairs(account.allowed) do
    account.allowed[name] = math.min(amount, parts[name] or 0)
    words[name] = name .. '=' .. number_text(account.allowed[name])
  end
  account.ceiling_text = string.gsub(account.whole_text, '%f[!-~](%l[%l%d_.]*)=[%d./]+', words)
end

-- read_allotments: read the allotments of those of these accounts whose ceilings are divided.
local function read_allotments(names)
  local divided = {}
  local fields = {}
  for _, name in ipairs(names) do
    if account_of(name).is_divided then
      divided[#divided + 1] = name
      fields[#fields + 1] = '=' .. name
    end
  end
  for from = 1, #fields, 1000 do
    local to = math.min(from + 999, #fields)
    local texts = redis.call('HMGET', KEY.policy, unpack(fields, from, to))
    for i = from, to do
      apply_allotment(account_of(divided[i]), texts[i - from + 1])
    end
  end
end

-- account_line: return 'HELD of CEILING' of an account that this call has read. HELD may end with
-- ' full': then a scheduler knows that it is woken when the account has room. CEILING is '-' for
-- none, and '?' for one that cannot be read: then the account has room for nothing.
local function account_line(name)
  local account = ACCOUNTS[name]
  local held_text = account.count and (account.text or account_text(account)) or 'damaged'
  local mark = account.count and account.full and ' full' or ''
  return held_text .. mark .. ' of ' .. account.ceiling_text
end

-- list_wanting: let the leader find accounts that have refused tasks and have no allotment.
local function list_wanting()
  local fields = {}
  for name, account in pairs(ACCOUNTS) do
    if account.is_divided and account.full and not account.allotment then
      fields[#fields + 1] = '=' .. name
      fields[#fields + 1] = '0'
    end
  end
  write_all('HSET', KEY.policy, fields)
end

-- bad_allotments: return the error reply if the key of the allotments has another type, or nil.
local function bad_allotments()
  return bad_type(KEY.policy, 'hash')
end

-- write_allotment: write the allotment of an account; '' for none.
local function write_allotment(name, text)
  if text == '' then
    redis.call('HDEL', KEY.policy, '=' .. name)
  else
    redis.call('HSET', KEY.policy, '=' .. name, text)
  end
end

-- allotted_accounts: return the names of all accounts with an allotment, sorted.
local function allotted_accounts()
  local fields = redis.call('HGETALL', KEY.policy)
  local names = {}
  for i = 1, #fields, 2 do
    names[#names + 1] = string.match(fields[i], '^=([@%w][%w_.:@+/-]*)$')
  end
  table.sort(names)
  return names
end

-- read_seal: return the seal of this shard, '' if it has none.
local function read_seal()
  redis.call('HDEL', KEY.policy, '') -- deletes nothing; see docs/decisions/0015
  return redis.call('HGET', KEY.policy, '#seal') or ''
end

-- write_seal: write the seal that follows, a number and the salt; return it.
local function write_seal(seal, salt)
  local number = tonumber(string.match(seal, '^(%d+)%.') or '0') or 0
  local next_seal = string.format('%d.%s', number + 1, salt)
  redis.call('HSET', KEY.policy, '#seal', next_seal)
  return next_seal
end
