-- read_partition: return a partition's snapshot if it changed since `version`; note who waits for a free slot there.
-- KEYS: meta free left
-- READS: meta free left
-- ARGV: version waiter
--   waiter: '' or the scheduler that wants to hear of a slot freed here; each is told once, in the order they asked
-- RETURNS: {version, epoch} if nothing changed, else {version, epoch, bits, (node, amounts left)*}
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: it writes nothing that a decision rests on.
-- ATOMICITY: bits, amounts and version belong together.
-- COMPLEXITY: O(slots / 8 + nodes that declare resources)
--- @include counts
local damaged, version, epoch = read_counts(meta, 'version', 'epoch', 'free')
if damaged then return damaged end
version, epoch = tonumber(version or 0), tonumber(epoch or 0)
local reply = {version, epoch}
if version ~= tonumber(args.version) then
  reply = redis.call('HGETALL', left)
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
