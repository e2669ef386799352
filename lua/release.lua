-- release: a slot is free again, if exactly this task, attempt and incarnation hold it; all slots that go with it too.
-- KEYS: meta slots free left nodes
-- ARGV: count channel partition (node slot task attempt inc)*
-- RETURNS: a word a lease: freed, none
-- ERRORS: PSARGS
-- INVARIANT: the bit becomes 1 only if the node is up, not draining, and still has that slot.
-- ATOMICITY: lease, bits and ledger change together; the scheduler that waits longest for this
--   partition hears of it, as 'freed PARTITION FREE SLOTS'.
-- COMPLEXITY: O(slots freed)
--- @include arguments
--- @include ledger
--- @include node
--- @include lease
local meta, slots, free, left, nodes = unpack(KEYS)
local count, channel, partition = tonumber(ARGV[1]) or 0, ARGV[2], ARGV[3]
local bad = bad_count('release', 5, 3 + 5 * count)
if bad then return bad end
local seen, replies, changed, freed = {}, {}, false, 0

local function release(name, slot, task, attempt, inc)
  local lease = parse_lease(redis.call('HGET', slots, name .. '/' .. slot))
  if not lease or not lease.slots or lease.task ~= task or lease.attempt ~= attempt or lease.inc ~= inc then
    return 'none'
  end
  seen[name] = seen[name] or read_node(nodes, name)
  local node = seen[name]
  for number in string.gmatch(lease.slots, '%d+') do
    redis.call('HDEL', slots, name .. '/' .. number)
    if node and usable(node, tonumber(number)) then
      redis.call('SETBIT', free, node.first + number, 1)
      freed = freed + 1
    end
  end
  if lease.asked ~= '' then
    local ledger = redis.call('HGET', left, name)
    if ledger then
      local rest = amounts(ledger)
      ledger_add(rest, amounts(lease.asked), 1)
      redis.call('HSET', left, name, ledger_text(rest))
    end
  end
  changed = true
  return 'freed'
end

for i = 1, count do replies[i] = release(unpack(ARGV, 5 * i - 1, 5 * i + 3)) end
if changed then
  local left_free = redis.call('HINCRBY', meta, 'free', freed)
  redis.call('HINCRBY', meta, 'version', 1)
  local waiters, declared = unpack(redis.call('HMGET', meta, 'waiters', 'slots'))
  if freed > 0 and waiters then
    local waiter, others = string.match(waiters, '^(%S+) ?(.*)$')
    if others == '' then redis.call('HDEL', meta, 'waiters') else redis.call('HSET', meta, 'waiters', others) end
    redis.call('PUBLISH', channel .. ':' .. waiter, string.format('freed %s %d %s', partition, left_free, declared))
  end
end
return replies
