-- The line of a task in the hash `tasks` says what the task is, until it ends:
--   [+]TAKES@LIFE ORDER READY_MS SUBMITTED_MS OPTIONS KIND: 0@17 9000000000017 1732161994123 1732161994123 - work slots=1
-- TAKES: how often it was taken before it last began to wait; '+': extra:ID has rare fields; OPTIONS: '-' or NAME=VALUE with
-- commas between. parsync_redis/model/record.py

-- parse_line: return the fields of a line as a table; nil for any other text. No line is longer than 20,000 bytes.
local function parse_line(text)
  if text and #text > 20000 then return nil end
  local mark, takes, life, order, ready, submitted, options, kind =
    string.match(text or '', '^(%+?)(%d+)@(%d+) (%d+) (%d+) (%d+) (%S+) (%S+ slots=%d[^\n]*)$')
  if not mark or #takes > 9 or #life > 15 or #order > 15 or #ready > 15 or #submitted > 15 then return nil end
  return {mark = mark, takes = tonumber(takes), life = life, order = order, ready = ready, submitted = submitted,
    options = options, kind = kind}
end

-- line_text: return the line of these fields.
local function line_text(line)
  return string.format('%s%d@%s %s %s %s %s %s', line.mark, line.takes, line.life, line.order, line.ready, line.submitted,
    line.options, line.kind)
end

-- option: return the value of an option, nil if the line does not have it.
local function option(line, name)
  return string.match(',' .. line.options, ',' .. name .. '=([^,]*)')
end

-- set_option: change an option of a line; nil takes it out.
local function set_option(line, name, value)
  local words = {}
  for word in string.gmatch(line.options, '[^,]+') do
    if word ~= '-' and string.sub(word, 1, #name + 1) ~= name .. '=' then words[#words + 1] = word end
  end
  if value then words[#words + 1] = name .. '=' .. value end
  line.options = #words > 0 and table.concat(words, ',') or '-'
end

-- note_last: write into a line on which node its task ran last, unless the task may as well go back there.
local function note_last(line, place)
  local node = string.match(place or '', '^%S+ %S+ p%d+ ([^ /]+)/')
  if node and not option(line, 'any') then set_option(line, 'last', node) end
end

-- run_parts: return the place and the start (ms) in the text of a run; nil for a place alone, and for a text too long for a run.
local function run_parts(run)
  if #run <= 140000 then return string.match(run, '^(.*) started=(%d+)$') end -- no place is longer than 131,072 bytes
end

-- attempt_of: return the attempt in the text of a place or a run; nil for any other text.
local function attempt_of(run) return #run <= 140000 and string.match(run, '^%S+ (%S+)') or nil end

-- split_kind: return the name, the needs and the strategy ('' if it has none) of a kind.
local function split_kind(kind)
  local name, needs = string.match(kind, '^(%S+) (.*)$')
  local rest, last = string.match(needs or '', '^(.*) (%l+)$')
  if rest then return name, rest, last end
  return name, needs, ''
end
