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
--- @include call/clock
--- @include repair/damage
-- smaller: return of each amount of a ledger the smaller one, this or that of another ledger.
local function smaller(one, other)
  local least = {}
  for name in pairs(one) do
    if not PARTS[name] then
      local part = name .. '.'
      local known = {[name] = other[name], [part] = other[part]}
      local from = other[name] and is_enough(one, known) and other or one
      least[name], least[part] = from[name], from[part]
    end
  end
  for name in pairs(other) do
    if undeclared(name) == 1 then least[name] = 0 end
  end
  return least
end

local how = args.how
if how ~= 'look' and how ~= 'open' and how ~= 'shut' then return redis.error_reply('PSARGS how is look, open or shut') end
local told, wrong, found, need = find_damage(meta, slots, free, left, changed, nodes, alive, lost, notes, how ~= 'shut')
if #told == 0 or how == 'look' then return told end

local names, first, total, highest = {}, 0, 0, 0
for any, other_type in pairs(wrong) do
  if other_type then redis.call('DEL', any) end
end
local before = how == 'shut' and (redis.call('GET', free) or '')
for name, span in pairs(need) do
  local note = redis.call('HGET', notes, name) or ''
  local node = {name = name, state = 'down', inc = '0', drain = is_terms(note) and '1' or '0', span = span, score = '1',
    offer = 'slots=' .. span, slots = span, first = 0}
  node.note = note_of(node, note)
  found[name] = node
end
for at = 1, #told, 3 do
  local any, field = told[at], told[at + 1]
  if any ~= free and any ~= lost and any ~= changed then redis.call('HDEL', any, field) end
end
for name, node in pairs(found) do
  names[#names + 1], total, highest = name, total + node.slots, math.max(highest, tonumber(node.inc))
end
table.sort(names)
local now = now_ms()
for field, value in pairs({version = now, epoch = now, inc = math.max(highest, math.floor(now / 1000))}) do
  local count = redis.call('HGET', meta, field) or ''
  if #count > 15 or not string.find(count, '^%d+$') then redis.call('HSET', meta, field, string.format('%d', value)) end
end
redis.call('HSET', meta, 'free', 0, 'slots', total)
redis.call('DEL', free, changed)
for _, name in ipairs(names) do
  local node, was = found[name], found[name].first
  node.first, first = first, first + node.span
  write_node(nodes, node)
  write_bits(meta, slots, free, node, before and function(slot) return bit_at(before, was + slot) == 1 end)
  local any_lost, rest = lost_and_left(slots, node)
  if before then rest = smaller(rest, amounts(redis.call('HGET', left, name) or '')) end -- a lost lease may hold some
  write_left(left, name, rest)
  if node.note ~= '' then redis.call('HSET', notes, name, node.note) else redis.call('HDEL', notes, name) end
  if any_lost or node.state == 'down' then redis.call('SADD', lost, name) end
  if not redis.call('HGET', alive, name) then
    redis.call('HSET', alive, name, counter_text(node.inc, 0, node.state == 'down' and now_ms() or nil))
  end
end
changed_nodes(meta)
redis.call('ZADD', changed, redis.call('HGET', meta, 'version'), '')
return told
