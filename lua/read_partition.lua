-- read_partition: return what changed in a partition since `version`; note who waits for a free slot there.
-- KEYS: meta free left changed
-- READS: meta free left changed
-- ARGV: version waiter
--   version: that of the copy that is to be renewed, -1 for none
--   waiter: '' or the scheduler that wants to hear of a slot freed here; each is told once, in the order they asked
-- RETURNS: {version, epoch} if nothing changed, else {version, epoch, bits, whole, (node, amounts left)*}; whole: 1 if all nodes
--   with amounts follow, 0 if those whose amounts changed since `version` do, '' if a node has none any more
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: it writes nothing that a decision rests on.
-- ATOMICITY: bits, amounts and version belong together.
-- COMPLEXITY: O(slots / 8 + nodes whose amounts changed), without `version` O(slots / 8 + nodes that declare resources)
--- @include batch
--- @include counts
local damaged, version, epoch = read_counts(meta, 'version', 'epoch', 'free')
if damaged then return damaged end
version, epoch = tonumber(version or 0), tonumber(epoch or 0)

-- changes_since: return {node, amounts left, ...} of the nodes that changed since a version; nil if that is not known.
local function changes_since(since)
  local first, found = tonumber(redis.call('ZSCORE', changed, '') or version), {}
  if not since or since < first or since > version then return nil end
  local names = redis.call('ZRANGEBYSCORE', changed, string.format('(%d', since), '+inf')
  local texts = read_list(left, names)
  for i, name in ipairs(names) do found[2 * i - 1], found[2 * i] = name, texts[i] or '' end
  return found
end

local reply, since = {version, epoch}, tonumber(args.version)
if version ~= since then
  local changes = changes_since(since)
  reply = changes or redis.call('HGETALL', left)
  table.insert(reply, 1, changes and 0 or 1)
  table.insert(reply, 1, redis.call('GET', free) or '')
  table.insert(reply, 1, epoch)
  table.insert(reply, 1, version)
end
local waiter = args.waiter
if waiter ~= '' then
  local waiters = redis.call('HGET', meta, 'waiters')
  if not string.find(' ' .. (waiters or '') .. ' ', ' ' .. waiter .. ' ', 1, true) then
    redis.call('HDEL', meta, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
    redis.call('HSET', meta, 'waiters', waiters and waiters .. ' ' .. waiter or waiter)
  end
end
return reply
