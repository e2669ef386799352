-- What of a partition cannot be read: that which no script can have written. Needs lib/arguments, lib/bits, lib/ledger.
--- @include bits
--- @include ledger
local NAME = '^%w[%w_.@-]*$'

-- find_damage: of the keys in KEYS, whose hashes are slots, left, nodes and alive:
--   told   {key, field, text} thrice flat for each thing that cannot be read; field '' is the whole key
--   wrong  {key -> true} for those of another type
--   found  {name -> node} of records that can be read
--   need   {name -> how many slots its leases need}
local function find_damage(slots, left, nodes, alive)
  local told, wrong, found, need = {}, {}, {}, {}
  local function tell(key, field, text)
    for _, word in ipairs({key, field, text}) do told[#told + 1] = word end
  end
  local function each(any, visit)
    local flat = wrong[any] and {} or redis.call('HGETALL', any)
    for i = 1, #flat, 2 do visit(flat[i], flat[i + 1]) end
  end
  for at, any in ipairs(KEYS) do
    local bad = bad_key(at, any)
    if bad then
      wrong[any] = redis.call('TYPE', any).ok ~= TYPES[at]
      tell(any, '', bad.err)
    end
  end
  each(nodes, function(name, text)
    local node = string.find(name, NAME) and parse_node(name, text)
    if node and well_formed(node.offer) then found[name] = node else tell(nodes, name, text) end
  end)
  each(slots, function(seat, text)
    local name, slot = string.match(seat, '^(%w[%w_.@-]*)/(%d%d?%d?%d?)$')
    local lease = name and string.format('%d', slot) == slot and parse_lease(text)
    if not lease or (found[name] and tonumber(slot) >= found[name].span) then
      tell(slots, seat, text)
    else
      if not found[name] and not need[name] then tell(nodes, name, 'no record, but leases') end
      need[name] = math.max(need[name] or 1, slot + 1)
    end
  end)
  each(alive, function(name, text)
    local ok = string.find(text, '^inc=%d+ moved=%d+$') or string.find(text, '^inc=%d+ moved=%d+ down$')
    if not ok then tell(alive, name, text) end
  end)
  each(left, function(name, text)
    if not well_formed(text) then tell(left, name, text) end
  end)
  return told, wrong, found, need
end
