-- Ceilings: what the holders of an account may hold at most, and how often tasks may start. The
-- hash `policy` has them by account, or by a pattern with '*' in the place of the last part:
--   slots=200 gpu=4                     the tenant @research
--   units=5 rate=100/60000 burst=10     the limit customer:*
-- A limit without an entry has room for nothing; a tenant without one has no ceiling.
-- A rate is judged by lib/kind/room.lua.
--- @include kind/accounts
--- @include kind/allotments
local HAS_DIVIDED = false -- whether a ceiling that this call has read is divided among shards

-- words_of: return {name -> number} of the words of a ceiling, the period of its rate, and among
-- how many shards it is divided; nil for a text that is no ceiling: without its words it would let
-- all tasks in.
local function words_of(text)
  local words = {}
  local rate_period
  for word in string.gmatch(#text <= 4096 and text or '', '[^ ]+') do
    local name, text_of_amount, divisor = string.match(word, '^(%l[%l%d_.]*)=(%d[%d.]*)(.*)$')
    local amount = tonumber(text_of_amount)
    local period = name == 'rate' and tonumber(string.match(divisor, '^/(%d+)$'))
    if not amount or name == 'rate' and not period or name ~= 'rate' and divisor ~= '' then
      return
    end
    words[name] = amount
    rate_period = period or rate_period
  end
  local shards = words.shards
  words.shards = nil
  words.declared = nil
  if next(words) and words.rate ~= 0 and rate_period ~= 0 then
    return words, rate_period, shards
  end
end

-- parse_ceiling: put a ceiling, or false for none, into the fields of an account.
local function parse_ceiling(account, text)
  local name, most = string.match(text or '', '^(%l+)=(%d+)$')
  if (name == 'units' or name == 'slots') and #most < 16 then
    account.ceiling_text = text
    account.allowed = {[name] = tonumber(most)}
    return
  end
  local words, period, shards = words_of(text or '')
  account.is_unread = text and not words
  account.ceiling_text = words and text or text and '?' or '-'
  account.allowed = text and words
  if period then
    account.interval = period / words.rate
    account.least_interval = account.interval
    account.burst = account.allowed.burst or 1
    account.allowed.rate = nil
    account.allowed.burst = nil
  end
  if shards then
    account.is_divided = true
    HAS_DIVIDED = true
  end
end

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

-- read_policy: return the texts of these fields of `policy`; nil for a key of another type.
local function read_policy(fields)
  local texts = {}
  for from = 1, #fields, 1000 do
    local to = math.min(from + 999, #fields)
    local chunk = redis.pcall('HMGET', KEY.policy, unpack(fields, from, to))
    if chunk.err then
      return nil
    end
    if to == #fields and from == 1 then
      return chunk
    end
    for i, text in ipairs(chunk) do
      texts[from + i - 1] = text
    end
  end
  return texts
end

-- list_fields: return the names whose ceilings this call has not read, the fields of `policy` that
-- may have these ceilings, each once, and for each name the place of its pattern in the fields.
local function list_fields(names)
  local unread = {}
  local fields = {}
  for i = 1, #names do
    local name = names[i]
    local account = ACCOUNTS[name]
    if not account.ceiling_text then
      account.ceiling_text = '-'
      unread[#unread + 1] = name
      fields[#fields + 1] = name
    end
  end
  local places = {}
  local pattern_places = {}
  for i = 1, #unread do
    local name = unread[i]
    local pattern = pattern_of(name)
    local place = pattern == name and i or pattern_places[pattern] or #fields + 1
    fields[place] = fields[place] or pattern
    pattern_places[pattern] = place
    places[i] = place
  end
  return unread, fields, places
end

-- read_ceilings: read the accounts of these names, their ceilings and their allotments. In a key
-- of another type every account is damaged.
local function read_ceilings(names)
  read_accounts(names)
  local unread, fields, places = list_fields(names)
  local texts = read_policy(fields)
  for i = 1, #unread do
    local account = ACCOUNTS[unread[i]]
    parse_ceiling(account, texts and (texts[i] or texts[places[i]]))
    if not texts then
      account.is_unread = true
      account.ceiling_text = '?'
    end
    if account.is_unread then
      account.count = nil
    end
  end
  if HAS_DIVIDED then
    read_allotments(unread)
  end
end

-- read_accounts_of: read the accounts to which tasks of these kinds count, and their ceilings.
local function read_accounts_of(kinds_asked)
  local names = {}
  for i = 1, #kinds_asked do
    local shares = shares_of(kinds_asked[i])
    for k = 1, #shares do
      names[#names + 1] = shares[k].name
    end
  end
  read_ceilings(names)
end
