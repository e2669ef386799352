-- learn_times: add the run times that a node has learnt.
-- KEYS: times
-- READS: times
-- ARGV: count kept (name text)*
--   kept: with more runs than this in its quarter octaves, a name forgets half of them
--   name: of a task; or name and node class, 'work gpu=2 zone:a'
--   text: 'COUNT TOTAL_MS BIN:RUNS,BIN:RUNS': runs, their time, and how many ended in which quarter octave from 0.125 ms on;
--     behind a space may follow OCTAVE:RUNS,OCTAVE:RUNS, which is never halved
-- RETURNS: how many names, with and without a class, have times
-- ERRORS: PSARGS
-- INVARIANT: 10,000 names at most, 9,000 of them with a class; they decide for how long bookings keep tasks waiting, and
--   nothing else. A text that no script writes is replaced. A repeated request counts its runs twice.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count)
--- @include call/batch

-- parse_list: return {number -> runs} of 'NUMBER:RUNS,NUMBER:RUNS'; nil for any other text.
local function parse_list(list)
  if string.gsub(',' .. list, ',%d+:%d+', '') ~= '' then return nil end
  local found = {}
  for number, many in string.gmatch(',' .. list, ',(%d+):(%d+)') do
    if #number > 3 or #many > 15 then return nil end
    found[number + 0] = (found[number + 0] or 0) + many
  end
  return found
end

-- list_of: return the text of {number -> runs}, the least number first.
local function list_of(runs)
  local list = {}
  for number, many in pairs(runs) do
    if many > 0 then list[#list + 1] = {number, many} end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  for at, pair in ipairs(list) do list[at] = string.format('%d:%.0f', pair[1], pair[2]) end
  return table.concat(list, ',')
end

-- parse_times: return runs, time, bins and octaves of a text; nil for any other text.
local function parse_times(text)
  local pattern = '^(%d+) (%d+)%f[%D](%.?%d*) ([%d:,]+)( ?[%d:,]*)$'
  local runs, total, part, list, more = string.match(text or '', pattern)
  if not runs or #runs > 15 or #total > 15 or #part == 1 or #part > 4 then return nil end
  local bins, octaves = parse_list(list), more == '' and {} or parse_list(string.sub(more, 2))
  if not bins or not octaves then return nil end
  return runs + 0, tonumber(total .. part), bins, octaves
end

local names, texts = {}, {}
for i, row in rows() do
  names[i], texts[i] = row.name, row.text
  if not parse_times(row.text) then return redis.error_reply('PSARGS learn_times: not the times of a name: ' .. row.text) end
end
local known, kept, fields = read_list(times, names), tonumber(args.kept) or 0, {}
local room = 10000 - redis.call('HLEN', times)
for i, name in ipairs(names) do
  local runs, total, bins, octaves = parse_times(texts[i])
  local before, time, old, olds = parse_times(known[i])
  if not before then room = room - 1 end
  local sum = 0
  for bin, many in pairs(old or {}) do bins[bin] = (bins[bin] or 0) + many end
  for octave, many in pairs(olds or {}) do octaves[octave] = (octaves[octave] or 0) + many end
  for _, many in pairs(bins) do sum = sum + many end
  if sum > kept then
    for bin, many in pairs(bins) do bins[bin] = math.floor(many / 2) end
  end
  if before or room >= (string.find(name, ' ', 1, true) and 1000 or 0) then
    local text = string.format('%.0f %.3f %s', runs + (before or 0), total + (time or 0), list_of(bins))
    local tail = list_of(octaves)
    fields[#fields + 1], fields[#fields + 2] = name, tail == '' and text or text .. ' ' .. tail
  end
end
redis.call('HDEL', times, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
if #fields > 0 then write_all('HSET', times, fields) end
return redis.call('HLEN', times)
