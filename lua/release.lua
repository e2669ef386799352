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
--- @include batch
--- @include ledger
--- @include lease
--- @include node
local meta, slots, free, left, nodes = unpack(KEYS)
local count, channel, partition = tonumber(ARGV[1]) or 0, ARGV[2], ARGV[3]
local bad = bad_count('release', 5, 3 + 5 * count)
if bad then return bad end
local seats, known = {}, {}
for i = 1, count do seats[i] = ARGV[5 * i - 1] .. '/' .. ARGV[5 * i] end
local leases = read_fields(slots, seats)
local given_back, bits, ledgers, replies = {}, {}, {}, {} -- what is written at the end, and answered

local function release(name, slot, task, attempt, inc)
  local lease = parse_lease(leases[name .. '/' .. slot])
  if not lease or not lease.slots or lease.task ~= task or lease.attempt ~= attempt or lease.inc ~= inc then
    return 'none'
  end
  known[name] = known[name] or read_node(nodes, name)
  local node = known[name]
  for number in string.gmatch(lease.slots, '%d+') do
    local seat = name .. '/' .. number
    given_back[#given_back + 1], leases[seat] = seat, nil
    if node and usable(node, tonumber(number)) then bits[#bits + 1] = node.first + number end
  end
  if lease.asked ~= '' then
    local ledger = ledgers[name] or redis.call('HGET', left, name)
    if ledger then
      local rest = amounts(ledger)
      ledger_add(rest, amounts(lease.asked), 1)
      ledgers[name] = ledger_text(rest)
    end
  end
  return 'freed'
end

for i = 1, count do replies[i] = release(unpack(ARGV, 5 * i - 1, 5 * i + 3)) end
if #given_back > 0 then
  write_all('HDEL', slots, given_back)
  write_all('HSET', left, flat(ledgers))
  for _, bit in ipairs(bits) do redis.call('SETBIT', free, bit, 1) end
  local left_free = redis.call('HINCRBY', meta, 'free', #bits)
  redis.call('HINCRBY', meta, 'version', 1)
  local waiters, declared = unpack(redis.call('HMGET', meta, 'waiters', 'slots'))
  if #bits > 0 and waiters then
    local waiter, others = string.match(waiters, '^(%S+) ?(.*)$')
    if others == '' then redis.call('HDEL', meta, 'waiters') else redis.call('HSET', meta, 'waiters', others) end
    redis.call('PUBLISH', channel .. ':' .. waiter, string.format('freed %s %d %s', partition, left_free, declared))
  end
end
return replies
