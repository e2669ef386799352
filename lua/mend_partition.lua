-- mend_partition: what no script can have written is taken out of a partition, and what follows from the rest is made anew.
-- KEYS: meta slots free left nodes alive lost
-- ARGV: none
-- RETURNS: (key, field, text)* of what could not be read; nothing if all could, and then nothing was changed
-- ERRORS: PSARGS
-- INVARIANT: a lease that can be read stays. A node whose record cannot is down, with as many slots as its leases need:
--   the keeper mends those, and its agent registers anew.
-- ATOMICITY: whole.
-- COMPLEXITY: O(slots of the partition)
--- @include arguments
--- @include clock
--- @include damage
if #KEYS ~= 7 or #ARGV ~= 0 then return bad_count('mend_partition', 7, 0) end
local meta, slots, free, left, nodes, alive, lost = unpack(KEYS)
local told, wrong, found, need = find_damage(slots, left, nodes, alive)
if #told == 0 then return told end

local last, names, total = 0, {}, 0
for any, other_type in pairs(wrong) do
  if other_type then redis.call('DEL', any) end
end
for _, node in pairs(found) do last = math.max(last, node.first + node.span) end
for at = 1, #told, 3 do
  local any, name = told[at], told[at + 1]
  if name ~= '' then redis.call('HDEL', any, name) end
  if any == nodes and string.find(name, NAME) and not found[name] then
    local span = need[name] or 1
    found[name] = {name = name, state = 'down', inc = '0', drain = '0', first = last, span = span, score = '1',
      offer = 'slots=' .. span, slots = span}
    last = last + span
  end
end
for name, node in pairs(found) do
  names[#names + 1], total = name, total + node.slots
end
table.sort(names)
local now = redis.call('TIME')
for field, value in pairs({version = now_ms(), epoch = now_ms(), inc = now[1]}) do
  if not string.find(redis.call('HGET', meta, field) or '', '^%d+$') then redis.call('HSET', meta, field, value) end
end
redis.call('HSET', meta, 'free', 0, 'slots', total)
redis.call('DEL', free)
for _, name in ipairs(names) do
  local node, rest, lost_here = found[name], amounts(found[name].offer), found[name].state == 'down'
  rest.slots = nil
  write_node(nodes, node)
  write_bits(meta, slots, free, node)
  each_lease(slots, node, function(_, lease)
    if lease.slots then ledger_add(rest, amounts(lease.asked), -1) end
    lost_here = lost_here or lease.inc ~= node.inc
  end)
  if next(rest) then redis.call('HSET', left, name, ledger_text(rest)) else redis.call('HDEL', left, name) end
  if lost_here then redis.call('SADD', lost, name) end
  if not redis.call('HGET', alive, name) then
    redis.call('HSET', alive, name, 'inc=' .. node.inc .. ' moved=0' .. (node.state == 'down' and ' down' or ''))
  end
end
changed_nodes(meta)
return told
