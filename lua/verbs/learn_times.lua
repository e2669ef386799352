-- learn_times: add the run times that a node has learnt.
-- KEYS: times
-- READS: times
-- ARGV: count kept (name text)*
--   kept: a name with more runs than this in its quarter octaves forgets half of these runs
--   name: of a task; or name and node class, 'work gpu=2 zone:a'
--   text: 'COUNT TOTAL_MS BIN:RUNS,BIN:RUNS': the runs, their time, and the runs that ended in each
--     quarter octave from 0.125 ms on. Behind a space may follow OCTAVE:RUNS,OCTAVE:RUNS, which are
--     never halved
-- RETURNS: the number of names that have times, with and without a class
-- ERRORS: PSARGS
-- INVARIANT: 10,000 names at most, 9,000 of them with a class. The times decide for how long
--   bookings keep tasks waiting, and where tasks go that prefer fast nodes; nothing is exact by
--   them. A text that no script writes is replaced. A repeated request counts its runs twice.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count)
--- @include call/batch

-- parse_list: return {number -> runs} of 'NUMBER:RUNS,NUMBER:RUNS'; nil for any other text.
local function parse_list(list)
  if string.gsub(',' .. list, ',%d+:%d+', '') ~= '' then
    return nil
  end
  local runs_by_number = {}
  for number, runs in string.gmatch(',' .. list, ',(%d+):(%d+)') do
    if #number > 3 or #runs > 15 then
      return nil
    end
    number = tonumber(number)
    runs_by_number[number] = (runs_by_number[number] or 0) + runs
  end
  return runs_by_number
end

-- list_text: return the text of {number -> runs}, the smallest number first.
local function list_text(runs_by_number)
  local numbers = {}
  for number, runs in pairs(runs_by_number) do
    if runs > 0 then
      numbers[#numbers + 1] = number
    end
  end
  table.sort(numbers)
  local words = {}
  for i, number in ipairs(numbers) do
    words[i] = string.format('%d:%.0f', number, runs_by_number[number])
  end
  return table.concat(words, ',')
end

-- parse_times: return a text as {runs, total_ms, bins, octaves}; nil for any text that is not the
-- times of a name.
local function parse_times(text)
  local pattern = '^(%d+) (%d+)%f[%D](%.?%d*) ([%d:,]+)( ?[%d:,]*)$'
  local runs, whole, part, bin_list, octave_list = string.match(text or '', pattern)
  if not runs or #runs > 15 or #whole > 15 or #part == 1 or #part > 4 then
    return nil
  end
  local bins = parse_list(bin_list)
  local octaves = octave_list == '' and {} or parse_list(string.sub(octave_list, 2))
  if not bins or not octaves then
    return nil
  end
  return {runs = tonumber(runs), total_ms = tonumber(whole .. part), bins = bins, octaves = octaves}
end

-- times_text: return the text of times.
local function times_text(times)
  local text = string.format('%.0f %.3f %s', times.runs, times.total_ms, list_text(times.bins))
  local octave_list = list_text(times.octaves)
  return octave_list == '' and text or text .. ' ' .. octave_list
end

-- add_runs: add to {number -> runs}.
local function add_runs(runs_by_number, added)
  for number, runs in pairs(added) do
    runs_by_number[number] = (runs_by_number[number] or 0) + runs
  end
end

-- add_times: add to the times of a name.
local function add_times(times, added)
  times.runs = times.runs + added.runs
  times.total_ms = times.total_ms + added.total_ms
  add_runs(times.bins, added.bins)
  add_runs(times.octaves, added.octaves)
end

-- forget_half: halve the runs of each quarter octave, if all quarter octaves together have more
-- than `most_runs` runs.
local function forget_half(bins, most_runs)
  local sum = 0
  for _, runs in pairs(bins) do
    sum = sum + runs
  end
  if sum > most_runs then
    for bin, runs in pairs(bins) do
      bins[bin] = math.floor(runs / 2)
    end
  end
end

-- merge_rows: return {name, text, ...} of the names that have times after this call. A new name
-- gets in while there is room; 1,000 of the 10,000 places are for names without a class.
local function merge_rows(rows_learnt, names)
  local texts = read_list(times, names)
  local room = 10000 - redis.call('HLEN', times) -- how many new names get in
  local fields = {}
  for i, learnt in ipairs(rows_learnt) do
    local earlier = parse_times(texts[i])
    if earlier then
      add_times(learnt, earlier)
    else
      room = room - 1
    end
    forget_half(learnt.bins, tonumber(args.kept) or 0)
    local has_class = string.find(names[i], ' ', 1, true)
    if earlier or room >= (has_class and 1000 or 0) then
      fields[#fields + 1] = names[i]
      fields[#fields + 1] = times_text(learnt)
    end
  end
  return fields
end

local names = {}
local rows_learnt = {}
for i, row in rows() do
  names[i] = row.name
  rows_learnt[i] = parse_times(row.text)
  if not rows_learnt[i] then
    return redis.error_reply('PSARGS learn_times: not the times of a name: ' .. row.text)
  end
end
local fields = merge_rows(rows_learnt, names)
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', times, '')
write_all('HSET', times, fields)
return redis.call('HLEN', times)
