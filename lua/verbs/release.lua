-- release: free the slots of places, each if exactly this lease stands.
-- KEYS: meta slots free left changed nodes
-- READS: meta slots free left changed nodes
-- ARGV: count channel partition (seat text)*
--   seat: of the first slot, 'n1/3'; text: the place
-- RETURNS: (row)* of places, from 1, that were not freed
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: a bit becomes 1 only if the node is up, not draining, and still has that slot.
-- ATOMICITY: lease, bits and ledger change together; the scheduler that has waited longest for this
--   partition hears 'freed PARTITION FREE SLOTS'.
-- COMPLEXITY: O(slots freed)
--- @include call/batch
--- @include call/bitmap
--- @include call/hash_numbers
--- @include node/ledger
--- @include place/lease
--- @include node/record
--- @include cluster/wake
local FIRST_BIT = {} -- node -> its first bit in `free`; false for a node that takes no claims
local WIDTH = {} -- node -> how many bits of `free` the node has
local FREED = {} -- slot -> true, of the slots that this call frees
local SEATS = {} -- the slots that this call frees, as a list
local BITS = {} -- operations of BITFIELD that set the free bits of these slots to 1

local names = {} -- of each row, its node; nil for a malformed row
local numbers = {} -- of each row, the number of its first slot, as text
local leases -- of each row, the lease of its first slot
local ledgers -- node -> its ledger; nil if no place has amounts
local version, free_count, slot_count, waiters

-- read_rows: return the rows' first slots, their nodes, and whether any place has amounts.
local function read_rows()
  local seats = {}
  local distinct = {}
  local have_amounts = false
  for i, row in rows() do
    local seat = row.seat
    local name, number = string.match(seat, '^(.+)/(%d+)$')
    seats[i] = seat
    names[i] = name
    numbers[i] = number
    if name and FIRST_BIT[name] == nil then
      distinct[#distinct + 1] = name
      FIRST_BIT[name] = false
    end
    have_amounts = have_amounts or has_amounts(row.text)
  end
  return seats, distinct, have_amounts
end

-- read_partition: read what the rows are judged by. Return the error reply, or nil.
local function read_partition(seats, distinct, have_amounts)
  leases = read_list(slots, seats)
  local records = read_list(nodes, distinct)
  for i = 1, #distinct do
    local name = distinct[i]
    FIRST_BIT[name], WIDTH[name] = open_bits(records[i] or '')
  end
  local refusal
  refusal, version, free_count, slot_count, waiters =
    read_counts(meta, 'version', 'free', 'slots', 'waiters')
  if refusal then
    return refusal
  end
  if have_amounts then
    ledgers = in_full().read_ledgers(left, names, count)
  end
  redis.call('GETBIT', free, 0) -- raises an error for another type
end

-- free_slot: note that a slot is free.
local function free_slot(name, seat, number)
  local first = FIRST_BIT[name]
  local slot = number + 0
  FREED[seat] = true
  SEATS[#SEATS + 1] = seat
  if first and slot < WIDTH[name] then
    local size = #BITS
    BITS[size + 1] = 'SET'
    BITS[size + 2] = 'u1'
    BITS[size + 3] = string.format('%d', first + slot)
    BITS[size + 4] = '1'
  end
end

-- free_place: note that all slots of a place are free, and give the place's amounts back.
local function free_place(i, seat, text)
  local name = names[i]
  if string.find(text, ',', 1, true) then
    for number in string.gmatch(in_full().place_slots(text), '%d+') do
      free_slot(name, name .. '/' .. number, number)
    end
  else
    free_slot(name, seat, numbers[i])
  end
  if ledgers and ledgers[name] then
    in_full().give_back(ledgers, name, text)
  end
end

-- free_places: free each place whose lease stands. Return the rows of the other places.
local function free_places()
  local reply = {}
  for i, row in rows() do
    local seat = row.seat
    local text = row.text
    if leases[i] ~= text or FREED[seat] or not names[i] then
      reply[#reply + 1] = i
    else
      free_place(i, seat, text)
    end
  end
  return reply
end

-- write_freed: write what is free now, and the next version of the partition.
local function write_freed()
  version = (version or 0) + 1
  free_count = (free_count or 0) + #BITS / 4
  if ledgers then
    look_at_changed(changed)
  end
  write_all('HDEL', slots, SEATS)
  if ledgers then
    in_full().write_ledgers(left, changed, version)
  end
  write_bits_at(free, BITS)
  redis.call('HSET', meta, 'version', version, 'free', free_count)
end

if count == 0 then
  return {}
end
local refusal = read_partition(read_rows())
if refusal then
  return refusal
end
local reply = free_places()
if #SEATS > 0 then
  write_freed()
end
if #BITS > 0 and waiters then
  in_full().ring_oldest(args.channel, args.partition, meta, waiters, free_count, slot_count)
end
return reply
