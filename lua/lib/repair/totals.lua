-- Look at what the counts of a partition say of all its nodes together, and for entries of no node.
--- @include node/changed_nodes
--- @include node/record_check

-- are_apart: return whether no bit is of two nodes, and none is 1 that is of no node. all: {first, span} of each node; size:
-- the number of bits.
local function are_apart(all, free, size)
  local last = 0
  table.sort(all, function(a, b) return a.first < b.first end)
  for _, one in ipairs(all) do
    if one.first < last or one.first > last + GAP then return false end
    if one.first > last and redis.call('BITCOUNT', free, last, one.first - 1, 'BIT') > 0 then return false end
    last = one.first + one.span
  end
  return last >= size or redis.call('BITCOUNT', free, last, -1, 'BIT') == 0
end

-- are_of_nodes: return whether each field of (field, value)* is a node.
local function are_of_nodes(entries, nodes)
  for i = 1, #entries, 2 do
    if redis.call('HEXISTS', nodes, entries[i]) == 0 then return false end
  end
  return true
end

-- totals_agree: return whether the counts agree with the records, and whether all other entries are of nodes.
local function totals_agree(meta, free, size, left, changed, nodes, alive, notes)
  local records, all, total = redis.call('HGETALL', nodes), {}, 0
  for i = 2, #records, 2 do
    local first, span, rest = string.match(records[i], '^%l+ inc=%d+ drain=%d first=(%d+) span=(%d+)%f[%D](.*)$')
    local own = rest and string.match(rest, ' slots=(%d+)%f[%D]')
    if not own or #first > 8 or #span > 5 or #own > 5 then return false end
    all[i / 2], total = {first = first + 0, span = span + 0}, total + own
  end
  local counts = redis.call('HMGET', meta, 'slots', 'free', 'version', 'epoch', 'inc')
  local agree = true
  local function is_node(name) return redis.call('HEXISTS', nodes, name) == 1 end
  judge_changed(changed, tonumber(counts[3] or 0) or 0, #all > 0, is_node, function() agree = false end)
  local are_dated = #all == 0 or counts[3] and counts[4] and counts[5]
  return agree and are_dated and tonumber(counts[1] or 0) == total and tonumber(counts[2] or 0) == redis.call('BITCOUNT', free)
    and #redis.call('HGETALL', alive) == #records and are_apart(all, free, size)
    and are_of_nodes(redis.call('HGETALL', left), nodes) and are_of_nodes(redis.call('HGETALL', notes), nodes)
end
