-- repair_offers: remove digests without a text, and wrong answers in `feasible`, because submit
-- judges tasks by them.
-- KEYS: meta shapes feasible names apps
-- READS: meta
-- ARGV: count (what text)*
--   what: 'digest' for a digest with a damaged text; 'unused' for a digest that no node seems to
--   offer; 'question' for an answer in `feasible`
-- RETURNS: how many were forgotten
-- ERRORS: PSARGS
-- INVARIANT: a digest that a node offers comes back with its offer; an answer comes back with the
--   next submit that asks.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count * nodes)
--- @include call/clock
--- @include kind/feasible

-- bad_row: return the error reply for a row with an unknown word, or nil.
local function bad_row()
  for _, row in rows() do
    if not string.find(' digest unused question ', ' ' .. row.what .. ' ', 1, true) then
      return redis.error_reply('PSARGS what is digest, unused or question')
    end
  end
end

-- is_offered: return whether a node offers the tasks of a digest.
local function is_offered(offers, digest)
  for _, offer in ipairs(offers) do
    if string.find(offer, ' celery.tasks:' .. digest, 1, true) then
      return true
    end
  end
  return false
end

-- forget_digest: remove what a digest stands for. Returns 1 if there was something, else 0.
local function forget_digest(digest)
  return math.max(redis.call('HDEL', names, digest), redis.call('ZREM', apps, digest))
end

-- is_feasible: return whether some node could run what a question asks: 'NAME NEEDS', without the
-- queue. Nobody asks a question of 20,000 bytes.
local function is_feasible(offers, question)
  local name, needs = string.match(#question < 20000 and question or '', '^(%S+) (.*)$')
  if not name then
    return false
  end
  local anywhere = string.gsub(needs, ' celery%.queue:%S+', '')
  local known, possible = judge_offers(offers, name, anywhere)
  return known and possible
end

-- ask_again: remove an answer, and write it again if it is right. Returns 1 if it was wrong, else
-- 0.
local function ask_again(offers, question)
  redis.call('HDEL', feasible, question)
  if is_feasible(offers, question) then
    redis.call('HSET', feasible, question, 'yes')
    return 0
  end
  return 1
end

-- restamp: give the digests a new stamp, by which processes notice the change, and forget all
-- answers.
local function restamp(stamp)
  local last = stamp and string.match(stamp, '^(%d+)%f[%D]%.?%x*$') or '0'
  if #last > 15 then
    last = '0'
  end
  local new_stamp = string.format('%d.', math.max(last + 1, tonumber(now_ms())))
  redis.call('HSET', meta, 'apps', new_stamp)
  redis.call('DEL', feasible)
end

local stamp = redis.call('HMGET', meta, 'apps')[1]
local offers = redis.call('HVALS', shapes)
local refusal = bad_row()
if refusal then
  return refusal
end
local number_forgotten = 0
local has_digests = false
redis.call('HDEL', meta, '') -- deletes nothing; see docs/decisions/0015
for _, row in rows() do
  if row.what == 'question' then
    number_forgotten = number_forgotten + ask_again(offers, row.text)
  elseif row.what == 'digest' or not is_offered(offers, row.text) then
    number_forgotten = number_forgotten + forget_digest(row.text)
    has_digests = true
  end
end
if has_digests then
  restamp(stamp)
end
return number_forgotten
