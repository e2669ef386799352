-- Schedulers that wait to be woken when tasks begin to wait of a kind of which none waited: `waiters` of the queue's meta.

-- wait_in: add the scheduler to the end of these `waiters`. Dead names gather at the front; they are cut off at 4,000 bytes.
local function wait_in(meta, waiters, scheduler)
  if string.find(' ' .. waiters .. ' ', ' ' .. scheduler .. ' ', 1, true) then return end
  local all = waiters == '' and scheduler or waiters .. ' ' .. scheduler
  if #all > 4000 then all = string.match(string.sub(all, -4000), ' (.*)$') or scheduler end
  redis.call('HSET', meta, 'waiters', all)
end

-- wake: wake the newest waiter but `me`; if nobody listens on its channel, the one before it, and so on, 16 at most.
local function wake(channel, meta, me)
  local waiters = redis.call('HMGET', meta, 'waiters')[1] or ''
  local rest, heard, tries = #waiters < 8000 and waiters or '', 0, 0
  while heard == 0 and rest ~= '' and tries < 16 do
    local others, last = string.match(rest, '^(.*) (%S+)$')
    if (last or rest) ~= me then heard = redis.call('SPUBLISH', channel .. ':' .. (last or rest), 'wake') end
    rest, tries = others or '', tries + 1
  end
  if rest ~= '' then
    redis.call('HSET', meta, 'waiters', rest)
  elseif waiters ~= '' then
    redis.call('HDEL', meta, 'waiters')
  end
end
