-- offer: tell submit what a node offers and which tasks its worker knows, or forget both.
-- KEYS: meta shapes feasible names apps
-- READS: meta
-- ARGV: node offer digest tasks
--   offer: '' for a node that is gone; digest and tasks: '' for a node that does not say which tasks it knows, else the
--   digest that the offer has as celery.tasks, and the text that it stands for (model/apps.py)
-- RETURNS: 1 if anything changed, else 0
-- ERRORS: PSARGS
-- INVARIANT: names has the text of each digest that some shape has, and of no other; apps has the newest digest last,
--   and each change of it gives meta another `apps`: the time, in ms, or one more than the last, and the digests that came and
--   went, so that it does not come back after lost writes;
--   feasible holds only kinds that some shape fits.
-- ATOMICITY: the shape and the names change together with the deletion of earlier answers.
-- COMPLEXITY: O(1); O(nodes) when a node's digest changes
--- @include call/clock
local node, offer, digest = args.node, args.offer, args.digest
if not string.find(digest, '^%x*$') or (string.match(offer, ' celery%.tasks:(%S+)') or '') ~= digest then
  return redis.error_reply('PSARGS offer: the digest is not the one in the offer')
end
local stamp = redis.call('HMGET', meta, 'apps')[1]
local before, changed, moved = redis.call('HGET', shapes, node) or '', 0, false
if offer == '' then
  changed = redis.call('HDEL', shapes, node)
elseif before ~= offer then
  redis.call('HSET', shapes, node, offer)
  changed = 1
end
local new = digest ~= '' and redis.call('HSETNX', names, digest, args.tasks) == 1
if digest ~= '' and (new or not redis.call('ZSCORE', apps, digest)) then
  local last = redis.call('ZREVRANGE', apps, 0, 0, 'WITHSCORES')
  redis.call('ZADD', apps, (tonumber(last[2]) or 0) + 1, digest)
  changed, moved = 1, true
end
local old = string.match(before, ' celery%.tasks:(%x+)') or digest
if old ~= digest then
  local used = false
  for _, other in ipairs(redis.call('HVALS', shapes)) do
    used = used or string.find(other, ' celery.tasks:' .. old, 1, true)
  end
  if not used then
    redis.call('HDEL', names, old)
    redis.call('ZREM', apps, old)
    moved = true
  end
end
if moved then
  local last = stamp and string.match(stamp, '^(%d+)%f[%D]%.?%x*$') or '0'
  if #last > 15 then last = '0' end
  redis.call('HSET', meta, 'apps', string.format('%d.%s%s', math.max(last + 1, tonumber(now_ms())), digest, old))
end
if changed == 1 then redis.call('DEL', feasible) end
return changed
