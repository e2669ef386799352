-- Write the nodes of a partition anew, and what follows from their leases. A script that calls
-- these functions has the keys meta, slots, free, left, changed, nodes, alive, lost and notes.
--- @include node/note
--- @include node/heartbeat
--- @include repair/contradictions

-- smaller: return a ledger that has, of each amount, the smaller of two ledgers. An amount
-- 'apart_WORD' that only one ledger has becomes 0.
local function smaller(ledger, old_ledger)
  local least = {}
  for name in pairs(ledger) do
    if not PARTS[name] then
      local part = name .. '.'
      local old_amount = {[name] = old_ledger[name], [part] = old_ledger[part]}
      local is_smaller = old_ledger[name] and is_enough(ledger, old_amount)
      local source = is_smaller and old_ledger or ledger
      least[name] = source[name]
      least[part] = source[part]
    end
  end
  for name in pairs(old_ledger) do
    if undeclared(name) == 1 then
      least[name] = 0
    end
  end
  return least
end

-- make_node: return a record for a node that has lost its record: down, with as many slots as its
-- leases need.
local function make_node(name, span)
  local note = redis.call('HGET', KEY.notes, name) or ''
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

-- sum_up: return the names of all nodes in order, the sum of their slots, and their highest
-- incarnation.
local function sum_up(nodes)
  local names = {}
  local total = 0
  local highest = 0
  for name, node in pairs(nodes) do
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
    local count = redis.call('HGET', KEY.meta, field) or ''
    if #count > 15 or not string.find(count, '^%d+$') then
      redis.call('HSET', KEY.meta, field, string.format('%d', value))
    end
  end
  redis.call('HSET', KEY.meta, 'free', 0, 'slots', total)
  redis.call('DEL', KEY.free, KEY.changed)
end

-- write_note: write the note of a node, or remove it if it is ''.
local function write_note(node)
  if node.note ~= '' then
    redis.call('HSET', KEY.notes, node.name, node.note)
  else
    redis.call('HDEL', KEY.notes, node.name)
  end
end

-- rebuild_node: write a node at the bits from `first` on, and what follows from its leases.
-- bits: nil, or the free bits as they were: then no bit opens that was shut, and no amount grows,
-- because a lease that is lost may hold them.
local function rebuild_node(node, first, bits)
  local old_first = node.first
  node.first = first
  write_node(KEY.nodes, node)
  write_bits(KEY.meta, KEY.slots, KEY.free, node, bits and function(slot)
    return bit_at(bits, old_first + slot) == 1
  end)
  local any_lost, ledger = lost_and_left(KEY.slots, node)
  if bits then
    ledger = smaller(ledger, amounts(redis.call('HGET', KEY.left, node.name) or ''))
  end
  write_left(KEY.left, node.name, ledger)
  write_note(node)
  if any_lost or node.state == 'down' then
    redis.call('SADD', KEY.lost, node.name)
  end
  if not redis.call('HGET', KEY.alive, node.name) then
    local since = node.state == 'down' and now_ms() or nil
    redis.call('HSET', KEY.alive, node.name, counter_text(node.inc, 0, since))
  end
end

-- rebuild: write all nodes anew, one behind the other.
local function rebuild(nodes, bits)
  local names, total, highest = sum_up(nodes)
  local first = 0
  write_counts(total, highest)
  for _, name in ipairs(names) do
    rebuild_node(nodes[name], first, bits)
    first = first + nodes[name].span
  end
  changed_nodes(KEY.meta)
  redis.call('ZADD', KEY.changed, redis.call('HGET', KEY.meta, 'version'), '')
end
