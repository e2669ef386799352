-- release: free the slots of places, each if exactly this lease stands.
-- KEYS: meta slots free left nodes
-- ARGV: count channel partition (seat text)*
--   seat: of the first slot, 'n1/3'; text: the place
-- RETURNS: (row)* of those, from 1, that were not freed
-- ERRORS: PSARGS
-- INVARIANT: the bit becomes 1 only if the node is up, not draining, and still has that slot.
-- ATOMICITY: lease, bits and ledger change together; the scheduler that has waited longest for this partition hears
--   'freed PARTITION FREE SLOTS'.
-- COMPLEXITY: O(slots freed)
--- @include batch
--- @include ledger
--- @include lease
--- @include node
local seats, known = {}, {}
for i, row in rows() do seats[i] = row.node .. '/' .. row.slot end
local leases = read_fields(slots, seats)
local given_back, bits, ledgers, replies = {}, {}, {}, {} -- written at the end, and the reply

local function release(row, held)
  local name, lease = row.node, parse_lease(leases[held])
  if not lease or not lease.slots or lease.task ~= row.task or lease.attempt ~= row.attempt or lease.inc ~= row.inc then
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

for i, row in rows() do replies[i] = release(row, seats[i]) end
if #given_back > 0 then
  write_all('HDEL', slots, given_back)
  write_all('HSET', left, flat(ledgers))
  for _, bit in ipairs(bits) do redis.call('SETBIT', free, bit, 1) end
  local channel, left_free = args.channel, redis.call('HINCRBY', meta, 'free', #bits)
  redis.call('HINCRBY', meta, 'version', 1)
  local waiters, declared = unpack(redis.call('HMGET', meta, 'waiters', 'slots'))
  if #bits > 0 and waiters then
    local waiter, others = string.match(waiters, '^(%S+) ?(.*)$')
    if others == '' then redis.call('HDEL', meta, 'waiters') else redis.call('HSET', meta, 'waiters', others) end
    redis.call('PUBLISH', channel .. ':' .. waiter, string.format('freed %s %d %s', args.partition, left_free, declared))
  end
end
return replies
