-- finish: the outcome of a run is accepted, if it is the current attempt's, at its place.
-- KEYS: meta pending later placed outbox task*
-- ARGV: count channel retention_s (id attempt node slot inc outcome why)*
--   outcome: succeeded, failed, cancelled, or again (the run ended in good order and wants another: retry, reject+requeue)
-- RETURNS: a word a task: ok, again (it is pending anew), yours (this very outcome was accepted before), stale
-- ERRORS: PSARGS PSOUTCOME
-- INVARIANT: a final state never changes; a stale attempt's outcome changes nothing.
-- ATOMICITY: each task by itself; what the run left for its next attempt takes effect with its outcome.
-- COMPLEXITY: O(count * log pending)
--- @include arguments
--- @include batch
--- @include clock
--- @include queue
local meta, pending, later, placed, outbox = unpack(KEYS, 1, 5)
local count, channel, retention_s = tonumber(ARGV[1]) or 0, ARGV[2], ARGV[3]
local bad = bad_count('finish', 5 + count, 3 + 7 * count, 5) or bad_retention(ARGV[3])
if bad then return bad end
local known = {succeeded = true, failed = true, cancelled = true, again = true}
for i = 1, count do
  if not known[ARGV[7 * i + 2]] then return redis.error_reply('PSOUTCOME unknown outcome ' .. ARGV[7 * i + 2]) end
end
local function read(key)
  return redis.pcall('HMGET', key, 'state', 'attempt', 'node', 'slot', 'inc', 'cancel', 'next_message')
end
local tasks, damage = read_tasks(5, read)
if damage then return damage end

local function next_attempt(key, id)
  local name, needs, strategy, due, expiry, message, priority, max_starts, publication = unpack(redis.call('HMGET', key,
    'next_name', 'next_needs', 'next_strategy', 'next_due_ms', 'next_expires_ms', 'next_message', 'next_priority',
    'next_max_starts', 'next_publication'))
  if message and name and needs and strategy then -- else its record is damaged, and it runs again as it was
    redis.call('HSET', key, 'name', name, 'needs', needs, 'strategy', strategy, 'message', message)
    redis.call('HDEL', key, 'expires_ms', 'max_starts')
    if string.find(priority or '', '^%d$') then
      local order = string.format('%.0f', (9 - priority) * 1e12 + order_of(key) % 1e12)
      redis.call('HSET', key, 'priority', priority, 'order', order)
    end
    if (max_starts or '') ~= '' then redis.call('HSET', key, 'max_starts', max_starts) end
    if (publication or '') ~= '' then redis.call('HSET', key, 'publication', publication) end
    if expiry and expiry ~= '' then redis.call('HSET', key, 'expires_ms', expiry) end
  end
  redis.call('HSET', key, 'starts', 0)
  redis.call('HDEL', key, unpack(NEXT))
  to_pending(key, id, pending, later, string.match(due or '', '^%d+$'))
end

redis.call('HDEL', placed, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
local now, idle, again, ended, replies = now_ms(), redis.call('ZCARD', pending) == 0, false, {}, {}
for i = 1, count do
  local id, attempt, node, slot, inc, outcome, why = unpack(ARGV, 7 * i - 3, 7 * i + 3)
  local key = KEYS[5 + i]
  local task = tasks[i] or read(key)
  if task[2] ~= attempt or task[3] ~= node or task[4] ~= slot or task[5] ~= inc then
    replies[i] = 'stale'
  elseif task[1] ~= 'running' then
    replies[i] = task[1] == outcome and 'yours' or 'stale'
  else
    ended[#ended + 1] = id
    if (outcome == 'again' or task[7]) and outcome ~= 'cancelled' and not task[6] then
      next_attempt(key, id)
      again = true
      replies[i] = 'again'
    else
      to_final(key, outcome == 'again' and 'cancelled' or outcome, now, why, retention_s,
        not task[6] and not task[7])
      if outcome == 'again' then to_outbox(outbox, id, 'cancelled', why) end
      replies[i] = 'ok'
    end
  end
end
write_all('HDEL', placed, ended)
if idle and again then wake(channel, meta) end
return replies
