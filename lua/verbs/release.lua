-- release: free the slots of places, each if exactly this lease stands.
-- KEYS: meta slots free left changed nodes
-- READS: meta slots free left changed nodes
-- ARGV: count channel partition (seat text)*
--   seat: of the first slot, 'n1/3'; text: the place
-- RETURNS: (row)* of places, from 1, that were not freed
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: a bit becomes 1 only if the node is up, not draining, and still has that slot.
-- ATOMICITY: lease, bits and ledger change together; the scheduler that has waited longest for this partition hears
--   'freed PARTITION FREE SLOTS'.
-- COMPLEXITY: O(slots freed)
--- @include call/batch
--- @include call/bitmap
--- @include call/hash_numbers
--- @include node/ledger_writes
--- @include place/lease
--- @include node/record
--- @include cluster/wake
local seats, names, numbers, firsts, sizes = {}, {}, {}, {}, {} -- firsts, sizes: of the nodes that take claims
local distinct, ledgers = {}, nil
for i, row in rows() do
  local seat, text = row.seat, row.text
  local name, number = string.match(seat, '^(.+)/(%d+)$')
  seats[i], names[i], numbers[i] = seat, name, number
  if name and firsts[name] == nil then
    distinct[#distinct + 1], firsts[name] = name, false
  end
  if not ledgers and has_amounts(text) then ledgers = true end
end
if count == 0 then return {} end
local leases, records = read_list(slots, seats), read_list(nodes, distinct)
for i = 1, #distinct do
  local name = distinct[i]
  firsts[name], sizes[name] = open_bits(records[i] or '')
end
local damaged, version, total, declared, waiters = read_counts(meta, 'version', 'free', 'slots', 'waiters')
if damaged then return damaged end
if ledgers then ledgers = in_full().read_ledgers(left, names, count) end
redis.call('GETBIT', free, 0) -- a key of another type is found before the first write
local freed, seats_freed, ops, reply, o = {}, {}, {}, {}, 0 -- freed: {seat -> true}; ops: of BITFIELD

-- free_slot: note that a slot is free.
local function free_slot(name, seat, number)
  local first, slot, list, at = firsts[name], number + 0, ops, o
  freed[seat], seats_freed[#seats_freed + 1] = true, seat
  if first and slot < sizes[name] then
    list[at + 1], list[at + 2], list[at + 3], list[at + 4] = 'SET', 'u1', string.format('%d', first + slot), '1'
    o = at + 4
  end
end

for i, row in rows() do
  local name, text, seat = names[i], row.text, seats[i]
  if leases[i] ~= text or freed[seat] or not name then
    reply[#reply + 1] = i
  else
    if string.find(text, ',', 1, true) then
      for number in string.gmatch(in_full().place_slots(text), '%d+') do free_slot(name, name .. '/' .. number, number) end
    else
      free_slot(name, seat, numbers[i])
    end
    if ledgers and ledgers[name] then in_full().give_back(ledgers, name, text) end
  end
end
if #seats_freed > 0 then
  version = (version or 0) + 1
  if ledgers then look_at_changed(changed) end
  write_all('HDEL', slots, seats_freed)
  if ledgers then in_full().write_ledgers(left, changed, version) end
  write_bits_at(free, ops)
  total = (total or 0) + o / 4
  redis.call('HSET', meta, 'version', version, 'free', total)
  if o > 0 and waiters then ring_oldest(args.channel, args.partition, meta, waiters, total, declared) end
end
return reply
