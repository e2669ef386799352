-- Find well-formed values in a partition that contradict its records and leases: bits, amounts,
-- counts, and the list of lost nodes. A script that calls these functions has the keys meta, slots,
-- free, left and lost.
--- @include node/free_bits
--- @include node/amounts_left

-- bit_at: return the bit at a position of a bitmap that was read as text.
local function bit_at(bits, position)
  local byte = string.byte(bits, math.floor(position / 8) + 1) or 0
  return math.floor(byte / 2 ^ (7 - position % 8)) % 2
end

-- same_amounts: return whether two ledgers have the same amounts. A whole amount has no
-- thousandths.
local function same_amounts(ledger, expected)
  for name, amount in pairs(ledger) do
    if (expected[name] or PARTS[name] and 0) ~= amount then
      return false
    end
  end
  for name in pairs(expected) do
    if not (ledger[name] or PARTS[name] and expected[name] == 0) then
      return false
    end
  end
  return true
end

-- judge_bits: report each bit of a node that contradicts its record and its leased slots.
-- bits: the text of `free`. Returns how many bits must be 1, and whether all bits are right.
local function judge_bits(node, leased, bits, report)
  local ones = 0
  local are_right = true
  for slot = 0, node.span - 1 do
    local right = (usable(node, slot) and not leased[slot]) and 1 or 0
    if bit_at(bits, node.first + slot) ~= right then
      report(KEY.free, node.name .. '/' .. slot, 'the bit is not ' .. right)
      are_right = false
    end
    ones = ones + right
  end
  return ones, are_right
end

-- judge_node: report what contradicts the record and the leases of a node, which are sound.
-- Returns as judge_bits does.
local function judge_node(node, bits, report)
  local name = node.name
  local any_lost, ledger, leased = lost_and_left(KEY.slots, node)
  local text = redis.call('HGET', KEY.left, name)
  if not same_amounts(ledger, text and amounts(text) or {}) then
    report(KEY.left, name, text or 'no amounts')
  end
  if any_lost and redis.call('SISMEMBER', KEY.lost, name) == 0 then
    report(KEY.lost, name, 'it has lost leases and is not listed')
  end
  return judge_bits(node, leased, bits, report)
end

-- judge_counts: report each count of meta that contradicts the sums over all nodes.
-- total: the number of slots; ones: the number of free slots.
local function judge_counts(has_nodes, total, ones, report)
  local names = {'slots', 'free', 'version', 'epoch', 'inc'}
  local expected = {total, ones}
  local counts = redis.call('HMGET', KEY.meta, unpack(names))
  for i = 1, has_nodes and 5 or 2 do
    local count = counts[i]
    local is_other = expected[i] and tonumber(count or 0) ~= expected[i]
    local is_missing = not expected[i] and not count
    if is_other or is_missing then
      report(KEY.meta, names[i], count or 'missing')
    end
  end
end

-- judge_nodes: report what contradicts the nodes {name -> node} and their leases, which are sound.
local function judge_nodes(sound, report)
  local total = 0
  local ones = 0
  local are_right = true
  local bits = redis.call('GET', KEY.free) or ''
  for _, node in pairs(sound) do
    local ones_of_node, are_right_there = judge_node(node, bits, report)
    total = total + node.slots
    ones = ones + ones_of_node
    are_right = are_right and are_right_there
  end
  if are_right and redis.call('BITCOUNT', KEY.free) ~= ones then
    report(KEY.free, 'bits', 'there are bits of no node')
  end
  judge_counts(next(sound), total, ones, report)
end
