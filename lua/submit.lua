-- submit: makes each task exist once, pending; or says why it cannot.
-- KEYS: meta pending later shapes feasible names expires task*
-- ARGV: count channel (id name needs strategy priority delay_ms expiry_ms wait after message)*
--   delay_ms is '' or how long the task must not be taken, expiry_ms '' or after how long it is not taken any more;
--   wait '1' lets it wait for capacity that no node has yet;
--   after is '' or the attempt that submits, while it runs, what the same id shall do next (Celery's retry and replace).
-- RETURNS: a word a task: submitted, exists, infeasible, unknown (no node knows that name), next, stale
-- ERRORS: PSARGS
-- INVARIANT: an id is one task however often it is submitted; a task is pending exactly when it is in pending or later.
-- ATOMICITY: each task is judged by itself; its record and its place in the order are written together.
-- COMPLEXITY: O(log pending) a task; O(nodes) for the first task of its kind after the nodes changed.
--- @include arguments
--- @include batch
--- @include clock
--- @include feasible
--- @include queue
--- @include submission
local meta, pending, later, shapes, feasible, names, expires = unpack(KEYS, 1, 7)
local count, channel = tonumber(ARGV[1]) or 0, ARGV[2]
local bad = bad_count('submit', 7 + count, 2 + 10 * count, 7)
for at = 2, bad and 0 or 1 + 10 * count, 10 do bad = bad or bad_submission(unpack(ARGV, at + 1, at + 10)) end
if bad then return bad end

local function read(key) return redis.pcall('HMGET', key, 'state', 'attempt') end
local tasks, damage = read_tasks(7, read)
if damage then return damage end

local now, idle, replies = now_ms(), redis.call('ZCARD', pending) == 0, {}
local submitted, waiting = tonumber(redis.call('HMGET', meta, 'submitted')[1] or 0), {}
local last = submitted
for i = 1, count do
  local id, name, needs, strategy, priority, delay_ms, expiry_ms, wait, after, message = unpack(ARGV, 10 * i - 7, 10 * i + 2)
  local key, due, expiry = KEYS[7 + i], after_ms(now, delay_ms), after_ms(now, expiry_ms)
  local state, attempt = unpack(tasks[i] or read(key))
  if after ~= '' and state then
    if state == 'running' and attempt == after then
      redis.call('HDEL', key, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
      redis.call('HSET', key, 'next_message', message, 'next_name', name, 'next_needs', needs, 'next_strategy', strategy,
        'next_due_ms', due or '', 'next_expires_ms', expiry or '')
      if expiry then redis.call('ZADD', expires, expiry, id) end
      replies[i] = 'next'
    else
      replies[i] = 'stale'
    end
  elseif state then
    replies[i] = 'exists'
  else
    replies[i] = wait ~= '1' and misfit(feasible, names, shapes, name, needs) or 'submitted'
    if replies[i] == 'submitted' then
      last = last + 1
      local order = string.format('%.0f', (9 - priority) * 1e12 + last)
      redis.call('HSET', key, 'state', 'pending', 'name', name, 'needs', needs, 'strategy', strategy,
        'priority', priority, 'order', order, 'attempt', '0@' .. last, 'starts', '0', 'submitted_ms', now,
        'ready_ms', due or now, 'message', message)
      if expiry then
        redis.call('HSET', key, 'expires_ms', expiry)
        redis.call('ZADD', expires, expiry, id)
      end
      if due then
        redis.call('ZADD', later, due, id)
      else
        waiting[#waiting + 1] = order
        waiting[#waiting + 1] = id
      end
    end
  end
end
if last > submitted then redis.call('HINCRBY', meta, 'submitted', last - submitted) end
write_all('ZADD', pending, waiting)
if idle and #waiting > 0 then wake(channel, meta) end
return replies
