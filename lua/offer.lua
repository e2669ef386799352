-- offer: what a node offers, and the tasks that its worker knows, become known to submit; or are forgotten.
-- KEYS: shapes feasible names apps
-- ARGV: node offer digest tasks
--   offer is '' for a node that is no more; digest and tasks are '' for a node that says nothing of the tasks it knows,
--   else the digest that the offer has as celery.tasks, and the text that it stands for (model/apps.py)
-- RETURNS: 1 if anything changed, else 0
-- ERRORS: PSARGS
-- INVARIANT: names has the text of each digest that some shape has, and of no other; apps has the newest digest last;
--   feasible holds only kinds that some shape fits.
-- ATOMICITY: the shape, the names and the forgetting of earlier answers change together.
-- COMPLEXITY: O(1); O(nodes) when a node's digest changes
--- @include arguments
local bad = bad_count('offer', 4, 4)
if bad then return bad end
local shapes, feasible, names, apps = unpack(KEYS)
local node, offer, digest, tasks = unpack(ARGV)
if not string.find(digest, '^%x*$') or (string.match(offer, ' celery%.tasks:(%S+)') or '') ~= digest then
  return redis.error_reply('PSARGS offer: the digest is not the one in the offer')
end
local before, changed = redis.call('HGET', shapes, node) or '', 0
if offer == '' then
  changed = redis.call('HDEL', shapes, node)
elseif before ~= offer then
  redis.call('HSET', shapes, node, offer)
  changed = 1
end
local new = digest ~= '' and redis.call('HSETNX', names, digest, tasks) == 1
if digest ~= '' and (new or not redis.call('ZSCORE', apps, digest)) then
  local last = redis.call('ZREVRANGE', apps, 0, 0, 'WITHSCORES')
  redis.call('ZADD', apps, (tonumber(last[2]) or 0) + 1, digest)
  changed = 1
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
  end
end
if changed == 1 then redis.call('DEL', feasible) end
return changed
