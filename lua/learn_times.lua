-- learn_times: add the run times that a node has learnt.
-- KEYS: times
-- READS: times
-- ARGV: count kept (name text)*
--   kept: with more runs than this in its quarter octaves, a name forgets half of them
--   name: of a task; or name and node class, 'work gpu=2 zone:a'
--   text: 'COUNT TOTAL_MS BIN:RUNS,BIN:RUNS': runs, their time, and how many ended in which quarter octave from 0.125 ms on
-- RETURNS: how many names, with and without a class, have times
-- ERRORS: PSARGS
-- INVARIANT: 10,000 names at most, 9,000 of them with a class; they decide for how long bookings keep tasks waiting, and
--   nothing else. A text that no script writes is replaced. A repeated request counts its runs twice.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count)
--- @include batch

-- parse_times: return runs, time and bins of a text; nil for any other text.
local function parse_times(text)
  local runs, total, part, list = string.match(text or '', '^(%d+) (%d+)%f[%D](%.?%d*) ([%d:,]+)$')
  if not runs or #runs > 15 or #total > 15 or #part == 1 or #part > 4 then return nil end
  if string.gsub(',' .. list, ',%d+:%d+', '') ~= '' then return nil end
  local bins = {}
  for bin, many in string.gmatch(',' .. list, ',(%d+):(%d+)') do
    if #bin > 3 or #many > 15 then return nil end
    bins[bin + 0] = (bins[bin + 0] or 0) + many
  end
  return runs + 0, tonumber(total .. part), bins
end

local names, texts = {}, {}
for i, row in rows() do
  names[i], texts[i] = row.name, row.text
  if not parse_times(row.text) then return redis.error_reply('PSARGS learn_times: not the times of a name: ' .. row.text) end
end
local known, kept, fields = read_list(times, names), tonumber(args.kept) or 0, {}
local room = 10000 - redis.call('HLEN', times)
for i, name in ipairs(names) do
  local runs, total, bins = parse_times(texts[i])
  local before, time, old = parse_times(known[i])
  if not before then room = room - 1 end
  local sum, list = 0, {}
  for bin, many in pairs(old or {}) do bins[bin] = (bins[bin] or 0) + many end
  for _, many in pairs(bins) do sum = sum + many end
  for bin, many in pairs(bins) do
    many = sum > kept and math.floor(many / 2) or many
    if many > 0 then list[#list + 1] = {bin, many} end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  for at, pair in ipairs(list) do list[at] = string.format('%d:%d', pair[1], pair[2]) end
  if before or room >= (string.find(name, ' ', 1, true) and 1000 or 0) then
    fields[#fields + 1] = name
    fields[#fields + 1] = string.format('%.0f %.3f %s', runs + (before or 0), total + (time or 0), table.concat(list, ','))
  end
end
redis.call('HDEL', times, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
if #fields > 0 then write_all('HSET', times, fields) end
return redis.call('HLEN', times)
