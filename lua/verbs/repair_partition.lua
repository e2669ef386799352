-- repair_partition: remove corrupt values from a partition, and rebuild what follows from the rest.
-- KEYS: meta slots free left changed nodes alive lost notes, of any type
-- ARGV: how
--   how: 'look' only tells what is corrupt, or contradicts the rest; 'open' repairs that; 'shut' repairs what cannot be read,
--   and opens no bit that is shut: leases may be lost, and the leader puts them back before it opens bits
-- RETURNS: (key, field, text)* of what was corrupt; if nothing was, nothing has changed
-- ERRORS: PSARGS
-- INVARIANT: a sound lease stays. A record that contradicts the counter of a node that is up follows the counter, unless
--   only the record's incarnation has leases. A node whose record is corrupt is down, with as many slots as its leases
--   need: the leader recovers those, and its agent registers again. A drain survives in the record or in the note.
-- ATOMICITY: whole.
-- COMPLEXITY: O(slots of the partition)
-- smaller: return of each amount of a ledger the smaller one, this or that of another ledger.
--- @include call/clock
--- @include repair/damage

-- smaller: return the smaller amounts of two ledgers. A word of `apart` that one of them has is 0.
local function smaller(ledger, other)
  local least = {}
  for name in pairs(ledger) do
    if not PARTS[name] then
      local part = name .. '.'
      local asked = {[name] = other[name], [part] = other[part]}
      local source = other[name] and is_enough(ledger, asked) and other or ledger
      least[name] = source[name]
      least[part] = source[part]
    end
  end
  for name in pairs(other) do
    if undeclared(name) == 1 then
      least[name] = 0
    end
  end
  return least
end

-- make_node: return a record for a node that has lost its record: down, with as many slots as its
-- leases need.
local function make_node(name, span)
  local note = redis.call('HGET', notes, name) or ''
  local node = {
    name = name,
    state = 'down',
    inc = '0',
    drain = is_terms(note) and '1' or '0',
    span = span,
    score = '1',
    offer = 'slots=' .. span,
    slots = span,
    first = 0,
  }
  node.note = note_of(node, note)
  return node
end

-- remove_corrupt: remove what is corrupt, as far as it is not written anew as a whole.
local function remove_corrupt(damage)
  for i = 1, #damage.reports, 3 do
    local key = damage.reports[i]
    if key ~= free and key ~= lost and key ~= changed then
      redis.call('HDEL', key, damage.reports[i + 1])
    end
  end
end

-- remove_keys: remove the keys of another type.
local function remove_keys(damage)
  for key, is_of_other_type in pairs(damage.corrupt) do
    if is_of_other_type then
      redis.call('DEL', key)
    end
  end
end

-- sum_up: return the names of all nodes in order, the sum of their slots, and their highest
-- incarnation.
local function sum_up(all)
  local names = {}
  local total = 0
  local highest = 0
  for name, node in pairs(all) do
    names[#names + 1] = name
    total = total + node.slots
    highest = math.max(highest, tonumber(node.inc))
  end
  table.sort(names)
  return names, total, highest
end

-- write_counts: write the counts of meta that have no number, and begin the free bits anew.
local function write_counts(total, highest)
  local now = now_ms()
  local inc = math.max(highest, math.floor(now / 1000))
  for field, value in pairs({version = now, epoch = now, inc = inc}) do
    local count = redis.call('HGET', meta, field) or ''
    if #count > 15 or not string.find(count, '^%d+$') then
      redis.call('HSET', meta, field, string.format('%d', value))
    end
  end
  redis.call('HSET', meta, 'free', 0, 'slots', total)
  redis.call('DEL', free, changed)
end

-- write_note: write the note of a node, or remove it if it is ''.
local function write_note(node)
  if node.note ~= '' then
    redis.call('HSET', notes, node.name, node.note)
  else
    redis.call('HDEL', notes, node.name)
  end
end

-- rebuild_node: write a node at the bits from `first` on, and what follows from its leases.
-- bits: nil, or the free bits as they were: then no bit opens that was shut, and no amount grows,
-- because a lease that is lost may hold them.
local function rebuild_node(node, first, bits)
  local old_first = node.first
  node.first = first
  write_node(nodes, node)
  write_bits(meta, slots, free, node, bits and function(slot)
    return bit_at(bits, old_first + slot) == 1
  end)
  local any_lost, ledger = lost_and_left(slots, node)
  if bits then
    ledger = smaller(ledger, amounts(redis.call('HGET', left, node.name) or ''))
  end
  write_left(left, node.name, ledger)
  write_note(node)
  if any_lost or node.state == 'down' then
    redis.call('SADD', lost, node.name)
  end
  if not redis.call('HGET', alive, node.name) then
    local since = node.state == 'down' and now_ms() or nil
    redis.call('HSET', alive, node.name, counter_text(node.inc, 0, since))
  end
end

-- rebuild: write all nodes anew, one behind the other.
local function rebuild(all, bits)
  local names, total, highest = sum_up(all)
  local first = 0
  write_counts(total, highest)
  for _, name in ipairs(names) do
    rebuild_node(all[name], first, bits)
    first = first + all[name].span
  end
  changed_nodes(meta)
  redis.call('ZADD', changed, redis.call('HGET', meta, 'version'), '')
end

local how = args.how
if how ~= 'look' and how ~= 'open' and how ~= 'shut' then
  return redis.error_reply('PSARGS how is look, open or shut')
end
local damage = find_damage(how ~= 'shut')
if #damage.reports == 0 or how == 'look' then
  return damage.reports
end
remove_keys(damage)
local bits = how == 'shut' and (redis.call('GET', free) or '') or nil
for name, span in pairs(damage.needed) do
  damage.sound[name] = make_node(name, span)
end
remove_corrupt(damage)
rebuild(damage.sound, bits)
return damage.reports
