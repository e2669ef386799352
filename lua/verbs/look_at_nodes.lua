-- look_at_nodes: look at some nodes of a partition, and at some of its leases, for what contradicts the rest. It writes nothing.
-- KEYS: meta slots free left changed nodes alive lost notes, of any type
-- READS: meta slots free left changed nodes alive lost notes
-- ARGV: count cursor most node*
--   cursor: of the entries of `slots`, 0 or as the last reply says; with 0 the counts of the partition are looked at as well
--   most: about so many entries are looked at, 0 for none
-- RETURNS: {word, cursor}; word: sound, or suspect: repair_partition judges the whole partition at one moment
-- ERRORS: PSARGS
-- INVARIANT: it writes nothing. A partition is sound if each of its nodes and each entry of `slots` is.
-- ATOMICITY: whole.
-- COMPLEXITY: O(slots of these nodes + most); with cursor 0 O(nodes of the partition) as well
--- @include node/ledger
--- @include node/record_check
--- @include repair/split_leases
--- @include repair/totals
--- @include repair/types
--- @include repair/contradictions
local bad = bad_number('most', args.most, 0, 10000)
if bad then return bad end
if not (#args.cursor <= 20 and string.find(args.cursor, '^%d+$')) then
  return redis.error_reply('PSARGS this is no cursor: ' .. args.cursor)
end
local word, found, spans, cursor = 'sound', {}, {}, '0'
local function tell() word = 'suspect' end
if next(corrupt_keys(tell)) then return {word, cursor} end
local highest, bits = tonumber(redis.call('HGET', meta, 'inc') or '') or math.huge, redis.call('GET', free) or ''

-- each_seat: call visit(seat, text) for each lease of the nodes that are looked at.
local function each_seat(_, visit)
  for name, node in pairs(found) do each_lease(slots, node, function(slot, _, text) visit(name .. '/' .. slot, text) end) end
end

-- span_of: return how many slots a node has, 0 if there is no such node.
local function span_of(name)
  if not spans[name] then spans[name] = (read_node(nodes, name) or {span = 0}).span end
  return spans[name]
end

for _, row in rows() do
  local name = row.node
  local text = redis.call('HGET', nodes, name)
  local node, ledger = text and string.find(name, NAME) and parse_node(name, text), redis.call('HGET', left, name)
  if node and well_formed(node.offer) and tonumber(node.inc) <= highest and not (ledger and not well_formed(ledger)) then
    node.text, found[name] = text, node
    judge_record(node, counter_of(redis.call('HGET', alive, name)), redis.call('HGET', notes, name) or nil, false, nodes, alive,
      notes, tell)
  elseif text then -- a node that is gone was forgotten meanwhile
    tell()
  end
end
judge_seats(each_seat, slots, tell, found, {})
if word == 'sound' then
  for _, node in pairs(found) do find_wrong_at(node, slots, free, left, lost, bits, tell) end
end
if args.cursor == '0' and not totals_agree(meta, free, 8 * #bits, left, changed, nodes, alive, notes) then tell() end
if args.most ~= '0' then
  local entries = redis.call('HSCAN', slots, args.cursor, 'COUNT', args.most)
  cursor = entries[1]
  for i = 1, #entries[2], 2 do
    local name, slot = string.match(entries[2][i], '^(%w[%w_.@-]*)/(%d%d?%d?%d?)$')
    if not name or string.find(slot, '^0.') or slot + 0 >= span_of(name) then tell() end
  end
end
return {word, cursor}
