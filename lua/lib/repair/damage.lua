-- Find corruption in a partition: values that no script writes, alone or combined with the others.
--- @include node/free_bits
--- @include node/changed_nodes
--- @include node/record_check
--- @include repair/split_leases
--- @include repair/types
--- @include repair/contradictions

-- new_damage: return what find_damage fills, after a look at the types of all keys.
local function new_damage()
  local damage = {reports = {}, sound = {}, needed = {}, garbled = {}, in_order = {}}
  function damage.report(key, field, text)
    for _, word in ipairs({key, field, text}) do
      damage.reports[#damage.reports + 1] = word
    end
  end
  function damage.each_field(any, visit)
    local words = damage.corrupt[any] and {} or redis.call('HGETALL', any)
    for i = 1, #words, 2 do
      visit(words[i], words[i + 1])
    end
  end
  damage.corrupt = corrupt_keys(damage.report)
  return damage
end

-- read_notes_and_counters: return {name -> note} and {name -> counter} of all nodes.
local function read_notes_and_counters(damage)
  local texts = {}
  local counters = {}
  damage.each_field(KEY.notes, function(name, text)
    texts[name] = text
  end)
  damage.each_field(KEY.alive, function(name, text)
    counters[name] = counter_of(text)
  end)
  return texts, counters
end

-- judge_records: report each corrupt record, and each record that contradicts the node's counter.
-- A contradicted record gets the counter's incarnation, and the state up instead of down. Fill
-- damage.sound and damage.in_order.
local function judge_records(damage, counters, leased, highest)
  damage.each_field(KEY.nodes, function(name, text)
    local has_name = string.find(name, NAME)
    local node = has_name and parse_node(name, text)
    local counter = counters[name]
    if node and is_contradicted(node, counter, leased, highest) then
      damage.report(KEY.nodes, name, text)
      node.inc = counter.inc
      if node.state == 'down' then
        node.state = 'up'
      end
    end
    local is_made_up = node and counter and counter.inc and counter.inc ~= node.inc
      and tonumber(node.inc) > highest
    if not node or is_made_up or not well_formed(node.offer) then
      damage.report(KEY.nodes, name, text)
      damage.garbled[name] = true
      if has_name then -- the agent registers again, or the leader forgets the node with its inbox
        damage.needed[name] = 1
      end
    else
      damage.sound[name] = node
      damage.in_order[#damage.in_order + 1] = node
      node.text = text
    end
  end)
end

-- judge_strays: report notes, leases, counters and ledgers of nodes without a sound record. Add the
-- nodes that have a drain to damage.needed.
local function judge_strays(damage, counters, texts)
  local sound = damage.sound
  local needed = damage.needed
  for name, note in pairs(texts) do
    if not sound[name] and is_terms(note) and string.find(name, NAME) then
      needed[name] = needed[name] or 1
    end
    if not sound[name] and not needed[name] then
      damage.report(KEY.notes, name, note)
    end
  end
  for name in pairs(needed) do
    if not damage.garbled[name] then
      damage.report(KEY.nodes, name, 'no record, but leases or a drain')
    end
  end
  for name, counter in pairs(counters) do
    if not sound[name] then
      damage.report(KEY.alive, name, counter.text)
    end
  end
  damage.each_field(KEY.left, function(name, text)
    if not well_formed(text) or not (sound[name] or needed[name]) then
      damage.report(KEY.left, name, text)
    end
  end)
end

-- judge_versions: report what is wrong in the sorted set of changed nodes.
local function judge_versions(damage)
  local is_readable = not damage.corrupt[KEY.meta]
  local latest = is_readable and tonumber(redis.call('HGET', KEY.meta, 'version') or 0) or math.huge
  if not damage.corrupt[KEY.changed] then
    judge_changed(KEY.changed, latest, next(damage.sound), function(name)
      return damage.sound[name] or damage.needed[name]
    end, damage.report)
  end
end

-- judge_sound: report sound records that contradict their counters, their notes or each other.
local function judge_sound(damage, counters, texts, highest)
  local last = 0
  table.sort(damage.in_order, function(a, b)
    return a.first < b.first
  end)
  for _, node in ipairs(damage.in_order) do
    local name = node.name
    local is_misplaced = node.first < last or node.first > last + GAP
    last = math.max(last, node.first + node.span)
    judge_record(node, counters[name], texts[name], is_misplaced, damage.report)
    if tonumber(node.inc) > highest then
      damage.report(KEY.meta, 'inc', node.inc)
    end
  end
end

-- find_damage: find what is corrupt in a partition, and what its repair needs.
-- whole: also find what contradicts the rest, if nothing is corrupt.
-- Returns a table with:
--   reports  {key, field, text, ...} of all that is corrupt; field '' is the whole key
--   corrupt  {key -> whether the key has another type} of the keys that are corrupt as a whole
--   sound    {name -> node} of the sound records, with `note`, and with a drain that only the note
--            has
--   needed   {name -> number of slots} of the nodes without a sound record that have leases, a
--            drain or a corrupt record
local function find_damage(whole)
  local damage = new_damage()
  local inc = not damage.corrupt[KEY.meta] and redis.call('HGET', KEY.meta, 'inc')
  local highest = tonumber(inc or '') or math.huge
  local texts, counters = read_notes_and_counters(damage)
  local leased = incarnations_leased(damage.each_field, KEY.slots)
  judge_records(damage, counters, leased, highest)
  judge_seats(damage.each_field, KEY.slots, damage.report, damage.sound, damage.needed)
  judge_strays(damage, counters, texts)
  judge_versions(damage)
  judge_sound(damage, counters, texts, highest)
  if whole and #damage.reports == 0 then
    judge_nodes(damage.sound, damage.report)
  end
  return damage
end
