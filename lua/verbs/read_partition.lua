-- read_partition: return what changed in a partition since `version`; note who waits for a free slot there.
-- KEYS: meta free left changed
-- READS: meta free left changed
-- ARGV: version waiter
--   version: that of the copy that is to be renewed, -1 for none
--   waiter: '' or the scheduler that wants to hear of a slot freed here; each is told once, in the order they asked
-- RETURNS: {version, epoch} if nothing changed, else {version, epoch, bits, whole, nodes, amounts}; nodes, amounts: names, and
--   what is left there, a line each; whole: 1 for all nodes with amounts, 0 for those whose amounts changed since `version`
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: it writes nothing that a decision rests on.
-- ATOMICITY: bits, amounts and version belong together.
-- COMPLEXITY: O(slots / 8 + nodes whose amounts changed), without `version` O(slots / 8 + nodes that declare resources)
--- @include call/batch
--- @include call/hash_numbers
local damaged, version, epoch = read_counts(meta, 'version', 'epoch', 'free')
if damaged then return damaged end
version, epoch = tonumber(version or 0), tonumber(epoch or 0)

local reply, since = {version, epoch}, tonumber(args.version)
if version ~= since then
  local names, texts
  local first = tonumber(redis.call('ZSCORE', changed, '') or version) -- of an earlier version the changes are not known
  local whole = not since or since < first or since > version
  if whole then
    names, texts = redis.call('HKEYS', left), redis.call('HVALS', left)
  else
    names = redis.call('ZRANGEBYSCORE', changed, string.format('(%d', since), '+inf')
    texts = read_list(left, names)
    for i = 1, #names do texts[i] = texts[i] or '' end
  end
  -- two long texts cost both sides half of what hundreds of short ones do
  reply[3], reply[4] = redis.call('GET', free) or '', whole and 1 or 0
  reply[5], reply[6] = table.concat(names, '\n'), table.concat(texts, '\n')
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
