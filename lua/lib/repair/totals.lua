-- Compare the counts of a partition with all its nodes together, and look for entries of no node.
-- A script that calls totals_agree has the keys meta, free, left, changed, nodes, alive and notes.
--- @include node/changed_nodes
--- @include node/record_check

-- are_apart: return whether no bit is of two nodes, and no bit of no node is 1.
-- ranges: {first, span} of each node; size: the number of bits.
local function are_apart(ranges, size)
  local last = 0
  table.sort(ranges, function(a, b)
    return a.first < b.first
  end)
  for _, range in ipairs(ranges) do
    local first = range.first
    if first < last or first > last + GAP then
      return false
    end
    if first > last and redis.call('BITCOUNT', KEY.free, last, first - 1, 'BIT') > 0 then
      return false
    end
    last = first + range.span
  end
  return last >= size or redis.call('BITCOUNT', KEY.free, last, -1, 'BIT') == 0
end

-- are_of_nodes: return whether each field of a hash is a node.
local function are_of_nodes(any)
  local entries = redis.call('HGETALL', any)
  for i = 1, #entries, 2 do
    if redis.call('HEXISTS', KEY.nodes, entries[i]) == 0 then
      return false
    end
  end
  return true
end

-- read_ranges: return {first, span} of each node, and the sum of their slots; nil for an unreadable
-- record.
local function read_ranges(records)
  local ranges = {}
  local total = 0
  for i = 2, #records, 2 do
    local first, span, suffix = string.match(records[i],
      '^%l+ inc=%d+ drain=%d first=(%d+) span=(%d+)%f[%D](.*)$')
    local slots = suffix and string.match(suffix, ' slots=(%d+)%f[%D]')
    if not slots or #first > 8 or #span > 5 or #slots > 5 then
      return nil
    end
    ranges[i / 2] = {first = first + 0, span = span + 0}
    total = total + slots
  end
  return ranges, total
end

-- are_dated: return whether the sorted set of changed nodes and the counts behind it are sound.
local function are_dated(has_nodes, version, epoch, inc)
  local is_sound = true
  judge_changed(KEY.changed, tonumber(version or 0) or 0, has_nodes, function(name)
    return redis.call('HEXISTS', KEY.nodes, name) == 1
  end, function()
    is_sound = false
  end)
  return is_sound and (not has_nodes or version and epoch and inc)
end

-- totals_agree: return whether the counts agree with the records, and all entries are of nodes.
-- size: the number of bits.
local function totals_agree(size)
  local records = redis.call('HGETALL', KEY.nodes)
  local ranges, total = read_ranges(records)
  if not ranges then
    return false
  end
  local slots, free, version, epoch, inc =
    unpack(redis.call('HMGET', KEY.meta, 'slots', 'free', 'version', 'epoch', 'inc'))
  return are_dated(#ranges > 0, version, epoch, inc)
    and tonumber(slots or 0) == total
    and tonumber(free or 0) == redis.call('BITCOUNT', KEY.free)
    and #redis.call('HGETALL', KEY.alive) == #records
    and are_apart(ranges, size)
    and are_of_nodes(KEY.left)
    and are_of_nodes(KEY.notes)
end
