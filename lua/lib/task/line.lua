-- The line of a task in the hash `tasks`, which says what the task is until it ends:
--   [+]TAKES@LIFE ORDER READY_MS SUBMITTED_MS OPTIONS KIND
--   0@17 8100217995234123 1732161994123 1732161994123 - work slots=1
-- TAKES: how often the task was taken before it last began to wait. '+': extra:ID has rare fields.
-- OPTIONS: '-' or NAME=VALUE with commas between. See parsync_redis/model/record.py.
--- @include call/clock

-- parse_line: return the fields of a line as a table; nil for any other text. No line is longer
-- than 20,000 bytes.
local function parse_line(text)
  if text and #text > 20000 then
    return nil
  end
  local mark, takes, life, order, ready, submitted, options, kind = string.match(text or '',
    '^(%+?)(%d+)@(%d+) (%d+) (%d+) (%d+) (%S+) (%S+ slots=%d[^\n]*)$')
  if not mark or #takes > 9 or #life > 15 then
    return nil
  end
  if #order > 16 or #ready > 15 or #submitted > 15 then
    return nil
  end
  return {
    mark = mark,
    takes = tonumber(takes),
    life = life,
    order = order,
    ready = ready,
    submitted = submitted,
    options = options,
    kind = kind,
  }
end

-- line_text: return the text of a line with these fields.
local function line_text(line)
  return string.format('%s%d@%s %s %s %s %s %s', line.mark, line.takes, line.life, line.order,
    line.ready, line.submitted, line.options, line.kind)
end

-- option: return the value of an option of a line; nil if the line does not have the option.
local function option(line, name)
  return string.match(',' .. line.options, ',' .. name .. '=([^,]*)')
end

-- set_option: change an option of a line; the value nil takes the option out.
local function set_option(line, name, value)
  local prefix = name .. '='
  local words = {}
  for word in string.gmatch(line.options, '[^,]+') do
    if word ~= '-' and string.sub(word, 1, #prefix) ~= prefix then
      words[#words + 1] = word
    end
  end
  if value then
    words[#words + 1] = prefix .. value
  end
  line.options = #words > 0 and table.concat(words, ',') or '-'
end

-- note_last: write into a line on which node its task ran last, unless the task may go back there.
local function note_last(line, place)
  local node = string.match(place or '', '^%S+ %S+ p%d+ ([^ /]+)/')
  if node and not option(line, 'any') then
    set_option(line, 'last', node)
  end
end

-- come_due: for a task whose run was put off before it began, write into the line since when the
-- task was ready at first. Return whether the task's run was put off.
local function come_due(line)
  local since = option(line, 'since')
  if since and #since < 16 and string.find(since, '^%d+$') then
    line.ready = since
  end
  if since then
    set_option(line, 'since', nil)
  end
  return since ~= nil
end

-- next_attempt: return the attempt of a task that is taken now, 'TAKES@LIFE' with the salt of the
-- take, and ready_ms of the reply of take. Return nil if the task cannot be taken.
-- is_elsewhere: whether the task is in another index beside its queue.
local function next_attempt(line, kind, is_elsewhere, salt)
  local takes, life, ready, options, kind_of_line =
    string.match(line, '^%+?(%d+)@(%d+) %d+ (%d+) %d+ (%S+) (.*)$')
  if is_elsewhere or kind_of_line ~= kind or #takes > 9 or #life > 15 or #ready > 15 then
    return nil
  end
  local attempt = (takes == '0' and '1' or string.format('%d', takes + 1)) .. '@' .. life .. salt
  if options == '-' then
    return attempt, ready
  end
  if is_past(string.match(options .. ',', 'expires=(%d+),'), now_ms()) then
    return nil
  end
  local avoided = string.match(options, 'last=([^,]+)')
  return attempt, avoided and ready .. ' ' .. avoided or ready
end

-- run_parts: return the place and the start (ms) in the text of a run; nil for a place alone, and
-- for a text that is too long for a run: no place is longer than 131,072 bytes.
local function run_parts(run)
  if #run <= 140000 then -- a longer text is no run
    return string.match(run, '^(.*) started=(%d+)$')
  end
end

-- is_run_at: return whether the text of a run is that of a run that has started at this place.
local function is_run_at(run, place)
  local behind = #place + 1
  return string.find(run, place, 1, true) == 1
    and string.find(run, ' started=', behind, true) == behind
end

-- attempt_of: return the attempt in the text of a place or a run; nil for any other text.
local function attempt_of(run)
  return #run <= 140000 and string.match(run, '^%S+ (%S+)') or nil
end

-- has_accounts: return whether a kind, or a line that ends in a kind, may name a tenant, limits or
-- the key of `warm`: shares_of says which. No line is longer than 20,000 bytes. The words for= and
-- under= are the last of a kind, and no tenant or limit has a '=' (61): a kind that ends in 's=1'
-- has neither, and if a space (32) is before its last word of seven bytes, it has no key. To search
-- for a space takes longer.
local function has_accounts(kind)
  local space, _, _, _, _, before, sign = string.byte(kind, -8, -2)
  if sign == 61 and before ~= 114 then -- 'r', the end of for= and under=
    return space ~= 32 and #kind <= 20000 and string.find(kind, 'warm=', 1, true)
  end
  return #kind <= 20000
    and (
      string.find(kind, 'for=', 1, true)
      or string.find(kind, 'under=', 1, true)
      or string.find(kind, 'warm=', 1, true)
    )
end
