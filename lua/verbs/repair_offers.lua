-- repair_offers: forget what submit must not judge by: digests that stand for nothing, and wrong answers.
-- KEYS: meta shapes feasible names apps
-- READS: meta
-- ARGV: count (what text)*
--   what: 'digest', whose text is damaged; 'unused', a digest that no node seems to offer; 'question', an answer of `feasible`
-- RETURNS: how many were forgotten
-- ERRORS: PSARGS
-- INVARIANT: a digest that a node offers comes back with its offer; an answer comes back with the next submit that asks.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count * nodes)
--- @include call/clock
--- @include kind/feasible
local digests, gone, stamp = {}, 0, redis.call('HMGET', meta, 'apps')[1]
local offers = redis.call('HVALS', shapes)
for _, row in rows() do
  if not string.find(' digest unused question ', ' ' .. row.what .. ' ', 1, true) then
    return redis.error_reply('PSARGS what is digest, unused or question')
  end
end
redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
for _, row in rows() do
  local used = false
  if row.what == 'unused' then
    for _, offer in ipairs(offers) do used = used or string.find(offer, ' celery.tasks:' .. row.text, 1, true) end
  end
  if row.what ~= 'question' and not used then
    gone = gone + math.max(redis.call('HDEL', names, row.text), redis.call('ZREM', apps, row.text))
    digests[#digests + 1] = row.text
  elseif row.what == 'question' then
    local name, needs = string.match(#row.text < 20000 and row.text or '', '^(%S+) (.*)$') -- nobody asks a longer one
    redis.call('HDEL', feasible, row.text)
    local wrong = not name
    if name then
      local known, possible = judge_offers(offers, name, (string.gsub(needs, ' celery%.queue:%S+', '')))
      wrong = not (known and possible)
    end
    if wrong then gone = gone + 1 else redis.call('HSET', feasible, row.text, 'yes') end
  end
end
if #digests > 0 then
  local last = stamp and string.match(stamp, '^(%d+)%f[%D]%.?%x*$') or '0'
  if #last > 15 then last = '0' end
  redis.call('HSET', meta, 'apps', string.format('%d.', math.max(last + 1, tonumber(now_ms()))))
  redis.call('DEL', feasible)
end
return gone
