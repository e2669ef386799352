-- Find corruption in a partition: values that no script writes, alone or combined with the others.
--- @include node/free_bits
--- @include node/changed_nodes
--- @include node/ledger
--- @include node/record_check
--- @include repair/split_leases
--- @include repair/types
--- @include repair/contradictions

-- find_damage: return what is corrupt in the partition, and what the repair needs:
--   told   {key, field, text, ...} of all that is corrupt; field '' is the whole key; `whole`: also what contradicts the rest
--   wrong  {key -> true} of the keys that are corrupt as a whole: whether the type is wrong
--   found  {name -> node} of sound records, with `note`, and drained if the record or the note says so
--   need   {name -> slots that its leases need} of nodes without a sound record that have leases, a drain or a corrupt record
local function find_damage(meta, slots, free, left, changed, nodes, alive, lost, notes, whole)
  local told, wrong, found, need, counters, said, by_bits, garbled, last = {}, nil, {}, {}, {}, {}, {}, {}, 0
  local function tell(key, field, text) for _, word in ipairs({key, field, text}) do told[#told + 1] = word end end
  local function each(any, visit)
    local words = wrong[any] and {} or redis.call('HGETALL', any)
    for i = 1, #words, 2 do visit(words[i], words[i + 1]) end
  end
  wrong = corrupt_keys(tell)
  local highest = not wrong[meta] and tonumber(redis.call('HGET', meta, 'inc') or '') or math.huge
  each(notes, function(name, text) said[name] = text end)
  each(alive, function(name, text)
    counters[name] = counter_of(text)
  end)
  local leased = incarnations_leased(each, slots)
  each(nodes, function(name, text)
    local node, counter = string.find(name, NAME) and parse_node(name, text), counters[name]
    if node and is_contradicted(node, counter, leased, highest) then
      tell(nodes, name, text)
      node.inc = counter.inc
      if node.state == 'down' then
        node.state = 'up'
      end
    end
    local made_up = node and counter and counter.inc and counter.inc ~= node.inc and tonumber(node.inc) > highest
    if not node or made_up or not well_formed(node.offer) then
      tell(nodes, name, text)
      garbled[name] = true
      if string.find(name, NAME) then need[name] = 1 end -- its agent registers again, or it is forgotten with its inbox
    else
      found[name], by_bits[#by_bits + 1], node.text = node, node, text
    end
  end)
  judge_seats(each, slots, tell, found, need)
  for name, note in pairs(said) do
    if not found[name] and is_terms(note) and string.find(name, NAME) then need[name] = need[name] or 1 end
    if not found[name] and not need[name] then tell(notes, name, note) end
  end
  for name in pairs(need) do
    if not garbled[name] then tell(nodes, name, 'no record, but leases or a drain') end
  end
  for name, counter in pairs(counters) do
    if not found[name] then tell(alive, name, counter.text) end
  end
  each(left, function(name, text)
    if not well_formed(text) or not (found[name] or need[name]) then tell(left, name, text) end
  end)
  local latest = not wrong[meta] and tonumber(redis.call('HGET', meta, 'version') or 0) or math.huge
  if not wrong[changed] then
    judge_changed(changed, latest, next(found), function(name) return found[name] or need[name] end, tell)
  end
  table.sort(by_bits, function(a, b) return a.first < b.first end)
  for _, node in ipairs(by_bits) do
    local is_apart = node.first < last or node.first > last + GAP
    last = math.max(last, node.first + node.span)
    judge_record(node, counters[node.name], said[node.name], is_apart, nodes, alive, notes, tell)
    if tonumber(node.inc) > highest then tell(meta, 'inc', node.inc) end
  end
  if whole and #told == 0 then find_wrong(meta, slots, free, left, lost, found, tell) end
  return told, wrong, found, need
end
