-- look_over: look at some tasks of a shard, or at some entries of an index, for what contradicts the rest.
-- KEYS: kinds changed later tasks messages taken running dead ended ended_1 ended_2 expires pending: extra:
-- READS: kinds changed later tasks messages taken running dead ended ended_1 ended_2 expires
-- ARGV: what cursor most
--   what: the hash or sorted set that is looked at; 'pending KIND' for the queue of a kind, and the line of the kind
--   cursor: 0, or as the last reply says
-- RETURNS: {cursor, looked, highest, (id, kind)*}; looked: how many entries; highest: the largest LIFE; then what is suspicious,
--   and the kind of which it was seen to wait; an id of '' is a kind
--   with a wrong line
-- ERRORS: PSARGS
-- INVARIANT: it writes nothing; repair_task judges each task that it names again.
-- ATOMICITY: whole.
-- COMPLEXITY: O(most)
--- @include entries
--- @include look
local name, its = string.match(args.what, '^(%S+) ?(.*)$')
local bad = bad_number('most', args.most, 1, 10000)
if bad then return bad end
local command = string.find(' later dead pending ', ' ' .. (name or '') .. ' ', 1, true) and 'ZSCAN'
  or string.find(' tasks messages taken running ended ended_1 ended_2 ', ' ' .. (name or '') .. ' ', 1, true) and 'HSCAN'
if not command or #args.cursor > 20 or not string.find(args.cursor, '^%d+$') then
  return redis.error_reply('PSARGS look_over: there is no index ' .. (name or '') .. ', or no cursor ' .. args.cursor)
end
local any = name == 'pending' and KEY.pending .. its or KEY[name]
local cursor, entries = unpack(redis.call(command, any, args.cursor, 'COUNT', args.most))
local ids, values, kind_of = {}, {}, {}
for i = 1, #entries, 2 do ids[#ids + 1], values[#values + 1] = entries[i], entries[i + 1] end
local suspects, highest, size = {}, 0, #ids
local function suspect(id) suspects[#suspects + 1], suspects[#suspects + 2] = id, kind_of[id] or its end
if name == 'tasks' then
  highest = look_at_tasks(ids, values, kind_of, suspect)
elseif string.find(name, '^ended') then
  look_at_ends(ids, values, suspect)
else
  look_at_entries(name, its, ids, suspect)
  if name == 'pending' and args.cursor == '0' and not has_its_line(its) then suspect('', its) end
end
return {cursor, size, highest, unpack(suspects)}
