-- read_partition: a partition's snapshot, if it changed since `version`; a scheduler with tasks it cannot place asks to be told.
-- KEYS: meta free left
-- ARGV: version waiter
--   waiter is '' or the scheduler that wants to hear of a slot freed here; each is told once, in the order they asked
-- RETURNS: {version, epoch} if nothing changed, else {version, epoch, bits, (node, amounts left)*}
-- ERRORS: PSARGS
-- INVARIANT: writes nothing that a decision rests on.
-- ATOMICITY: bits, amounts and version are of one moment.
-- COMPLEXITY: O(slots / 8 + nodes that declare resources)
--- @include arguments
local bad = bad_count('read_partition', 3, 2)
if bad then return bad end
local meta, free, left = unpack(KEYS)
local version, epoch, waiters = unpack(redis.call('HMGET', meta, 'version', 'epoch', 'waiters'))
version, epoch = tonumber(version or 0), tonumber(epoch or 0)
if ARGV[2] ~= '' and not string.find(' ' .. (waiters or '') .. ' ', ' ' .. ARGV[2] .. ' ', 1, true) then
  redis.call('HDEL', meta, '') -- changes nothing; a full server lets pass what begins so, docs/decisions/0015
  redis.call('HSET', meta, 'waiters', waiters and waiters .. ' ' .. ARGV[2] or ARGV[2])
end
if version == tonumber(ARGV[1]) then return {version, epoch} end
local reply = redis.call('HGETALL', left)
table.insert(reply, 1, redis.call('GET', free) or '')
table.insert(reply, 1, epoch)
table.insert(reply, 1, version)
return reply
