-- read_partition: return what changed in a partition since `version`, and note that a scheduler
-- waits for a free slot.
-- KEYS: meta free left changed
-- READS: meta free left changed
-- ARGV: version waiter
--   version: the version of the copy that is to be renewed, -1 without a copy
--   waiter: '' or the scheduler that wants to hear of a slot freed here. Waiters are told once
--   each, in the order in which they asked
-- RETURNS: {version, epoch} if nothing changed, else {version, epoch, bits, whole, nodes, amounts}
--   nodes, amounts: names and ledgers, a line each; whole: 1 for all nodes that have amounts, 0 for
--   the nodes whose amounts changed since `version`
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: the script writes nothing that a decision rests on.
-- ATOMICITY: bits, amounts and version belong together.
-- COMPLEXITY: O(slots / 8 + nodes whose amounts changed), without `version` O(slots / 8 + nodes
--   that declare resources)
--- @include call/batch
--- @include call/hash_numbers

-- add_changes: add the free bits and the changed ledgers to the reply.
local function add_changes(reply, version, since)
  local names
  local texts
  -- `changed` knows no change before its first version, so an older copy gets all nodes.
  local first = tonumber(redis.call('ZSCORE', changed, '') or version)
  local is_whole = not since or since < first or since > version
  if is_whole then
    names = redis.call('HKEYS', left)
    texts = redis.call('HVALS', left)
  else
    names = redis.call('ZRANGEBYSCORE', changed, string.format('(%d', since), '+inf')
    texts = read_list(left, names)
    for i = 1, #names do
      texts[i] = texts[i] or ''
    end
  end
  reply[3] = redis.call('GET', free) or ''
  reply[4] = is_whole and 1 or 0
  -- Two long texts, a line for each node, cost half of the CPU time of hundreds of short texts.
  reply[5] = table.concat(names, '\n')
  reply[6] = table.concat(texts, '\n')
end

local refusal, version, epoch = read_counts(meta, 'version', 'epoch', 'free')
if refusal then
  return refusal
end
local reply = {tonumber(version or 0), tonumber(epoch or 0)}
local since = tonumber(args.version)
if reply[1] ~= since then
  add_changes(reply, reply[1], since)
end
local waiter = args.waiter
if waiter ~= '' then
  local waiters = redis.call('HGET', meta, 'waiters')
  if not string.find(' ' .. (waiters or '') .. ' ', ' ' .. waiter .. ' ', 1, true) then
    redis.call('HDEL', meta, '') -- deletes nothing; see docs/decisions/0015
    redis.call('HSET', meta, 'waiters', waiters and waiters .. ' ' .. waiter or waiter)
  end
end
return reply
