-- look_at_nodes: look at some nodes of a partition, and at some of its leases, for what contradicts
-- the rest.
-- KEYS: meta slots free left changed nodes alive lost notes, of any type
-- READS: meta slots free left changed nodes alive lost notes
-- ARGV: count cursor most node*
--   cursor: of the entries of `slots`: 0, or the cursor of the last reply. With 0 the counts of the
--   partition are looked at too
--   most: about this many entries are looked at, 0 for none
-- RETURNS: {word, cursor}; word: sound, or suspect
--   suspect: repair_partition judges the whole partition at one moment
-- ERRORS: PSARGS
-- INVARIANT: the script writes nothing. A partition is sound if each node and each entry of `slots`
--   is sound.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(slots of these nodes + most); with cursor 0 O(nodes of the partition) too
--- @include node/record_check
--- @include repair/split_leases
--- @include repair/totals
--- @include repair/types
--- @include repair/contradictions
local word = 'sound'

-- suspect: make the reply say that something contradicts the rest.
local function suspect()
  word = 'suspect'
end

-- bad_argument: return the error reply for an argument that is out of range, or nil.
local function bad_argument()
  local refusal = bad_number('most', args.most, 0, 10000)
  if refusal then
    return refusal
  end
  if #args.cursor > 20 or not string.find(args.cursor, '^%d+$') then
    return redis.error_reply('PSARGS this is no cursor: ' .. args.cursor)
  end
end

-- read_sound_node: return the record of a node, nil if its record or its ledger is corrupt.
local function read_sound_node(name, text, highest)
  local node = string.find(name, NAME) and parse_node(name, text)
  local ledger = redis.call('HGET', left, name)
  local is_sound = node and well_formed(node.offer) and tonumber(node.inc) <= highest
    and not (ledger and not well_formed(ledger))
  if not is_sound then
    return nil
  end
  node.text = text
  return node
end

-- look_at_records: judge the records of the nodes. Returns {name -> node} of the sound records. A
-- node without a record was forgotten meanwhile.
local function look_at_records()
  local sound = {}
  local highest = tonumber(redis.call('HGET', meta, 'inc') or '') or math.huge
  for _, row in rows() do
    local name = row.node
    local text = redis.call('HGET', nodes, name)
    local node = text and read_sound_node(name, text, highest)
    if node then
      local counter = counter_of(redis.call('HGET', alive, name))
      local note = redis.call('HGET', notes, name) or nil
      sound[name] = node
      judge_record(node, counter, note, false, suspect)
    elseif text then
      suspect()
    end
  end
  return sound
end

-- look_at_leases: judge the leases of the nodes.
local function look_at_leases(sound)
  judge_seats(function(_, visit)
    for name, node in pairs(sound) do
      each_lease(slots, node, function(slot, _, text)
        visit(name .. '/' .. slot, text)
      end)
    end
  end, slots, suspect, sound, {})
end

-- look_at_seats: judge about `most` entries of `slots`, by whether there is such a seat. Returns
-- the next cursor.
local function look_at_seats()
  local spans = {}
  local function span_of(name)
    if not spans[name] then
      spans[name] = (read_node(nodes, name) or {span = 0}).span
    end
    return spans[name]
  end
  local cursor, entries = unpack(redis.call('HSCAN', slots, args.cursor, 'COUNT', args.most))
  for i = 1, #entries, 2 do
    local name, slot = string.match(entries[i], '^(%w[%w_.@-]*)/(%d%d?%d?%d?)$')
    if not name or string.find(slot, '^0.') or slot + 0 >= span_of(name) then
      suspect()
    end
  end
  return cursor
end

local refusal = bad_argument()
if refusal then
  return refusal
end
if next(corrupt_keys(suspect)) then
  return {word, '0'}
end
local bits = redis.call('GET', free) or ''
local sound = look_at_records()
look_at_leases(sound)
if word == 'sound' then
  for _, node in pairs(sound) do
    judge_node(node, bits, suspect)
  end
end
if args.cursor == '0' and not totals_agree(8 * #bits) then
  suspect()
end
local cursor = args.most ~= '0' and look_at_seats() or '0'
return {word, cursor}
