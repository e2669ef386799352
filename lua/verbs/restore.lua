-- restore: put lost leases back, for tasks that have these places, if no other task has their
-- slots.
-- KEYS: meta slots free left changed nodes
-- ARGV: count text*
--   text: the place of a task, as `running` has it
-- RETURNS: a word per place: back, yours, other or gone
--   back: the task has its lease again; yours: it had its lease; other: another task has a slot;
--   gone: the node is down, is another process now, or has no such slot
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: a slot has one lease. The ledger and the amounts of the leases add up to the offer.
-- ATOMICITY: each place by itself.
-- COMPLEXITY: O(count * span)
--- @include node/free_bits
--- @include repair/contradictions

-- bad_seat: return the error reply for a node with a seat whose text is no lease, or nil.
local function bad_seat(node)
  local bad_slot
  each_lease(slots, node, function(slot, lease)
    if not lease then
      bad_slot = slot
    end
  end)
  return bad_slot and redis.error_reply(
    string.format('PSRECORD %s has at %s/%d what is no lease', slots, node.name, bad_slot))
end

-- find_bad_node: return the error reply for the first node of these places that has a damaged seat,
-- or nil.
local function find_bad_node()
  local is_known = {}
  for _, row in rows() do
    local lease = task_at(row.text) and parse_lease(row.text)
    local node = lease and not is_known[lease.name] and read_node(nodes, lease.name)
    local refusal = node and bad_seat(node)
    if refusal then
      return refusal
    end
    if lease then
      is_known[lease.name] = true
    end
  end
end

-- seats_of: return the seats of a place as fields of `slots`; nil if the node has not all of them.
local function seats_of(lease, node)
  local seats = {}
  for slot in string.gmatch(lease.slots, '%d+') do
    if tonumber(slot) >= node.span or not names_seat(lease, slots, node.name, slot) then
      return nil
    end
    seats[#seats + 1] = node.name .. '/' .. slot
  end
  return seats
end

-- empty_seats: return (seat, text)* of the seats without a lease; nil if a seat has another lease.
local function empty_seats(seats, text)
  local entries = {}
  for i, present in ipairs(read_list(slots, seats)) do
    if present and present ~= text then
      return nil
    end
    if not present then
      entries[#entries + 1] = seats[i]
      entries[#entries + 1] = text
    end
  end
  return entries
end

-- follow_leases: make the bits, the ledger and the version of a node follow its leases.
local function follow_leases(node)
  local _, ledger, leased = lost_and_left(slots, node)
  write_left(left, node.name, ledger)
  for slot in pairs(leased) do
    if redis.call('SETBIT', free, node.first + slot, 0) == 1 then
      redis.call('HINCRBY', meta, 'free', -1)
    end
  end
  redis.call('ZADD', changed, redis.call('HINCRBY', meta, 'version', 1), node.name)
end

-- put_back: write a lease at each of its seats that has none. Returns the word of the reply.
local function put_back(text, lease)
  local node = read_node(nodes, lease.name)
  if not node or node.inc ~= lease.inc or node.state == 'down' then
    return 'gone'
  end
  local seats = seats_of(lease, node)
  if not seats then
    return 'gone'
  end
  local entries = empty_seats(seats, text)
  if not entries then
    return 'other'
  end
  if #entries == 0 then
    return 'yours'
  end
  write_all('HSET', slots, entries)
  follow_leases(node)
  return 'back'
end

redis.call('HDEL', meta, '') -- deletes nothing; see docs/decisions/0015
local refusal = find_bad_node() -- before anything is written
if refusal then
  return refusal
end
local words = {}
for i, row in rows() do
  local lease = task_at(row.text) and parse_lease(row.text)
  words[i] = lease and put_back(row.text, lease) or 'gone'
end
return words
