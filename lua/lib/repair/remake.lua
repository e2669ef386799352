-- Make anew what a damaged task has lost, from what is left of it.
--- @include place/lease
--- @include task/transitions

-- place_of: return the text of the place in that of a run.
local function place_of(run) return run_parts(run) or run end

-- is_run: return whether a text is a place of this task, or that of its run.
local function is_run(text, id)
  local place, started = run_parts(text)
  return (not started or #started < 16) and task_at(place or text) == id
end

-- matches: return whether the attempt in the text of a run is the one that the line tells.
local function matches(run, line)
  local takes, life = string.match(run, '^%S+ (%d+)@(%d+)%.%S+%.%w+ ')
  return takes and #takes < 10 and tonumber(takes) == line.takes + 1 and life == line.life
end

-- adopt: make the attempt that the line tells that of a run.
local function adopt(run, line)
  local takes, life = string.match(run, '^%S+ (%d+)@(%d+)')
  if takes and #takes < 10 and #life < 16 then line.takes, line.life = takes - 1, life end
end

-- name_in: return the name of the task that a message is of, as its headers have it; nil if they do not tell.
local function name_in(message) return string.match(message, '"task": ?"([^"\\%s]+)"') end

-- name_of: return the name in a word NAME=AMOUNT.
local function name_of(word) return string.match(word, '^[^=]*') end

-- needs_text: return the amounts of a place as its task asked for them, without the devices.
local function needs_text(asked)
  local words, whole, seen = {}, {}, {}
  for name, amount in string.gmatch(asked, '%f[!-~]([^ =]+)=([%d.]+)') do
    local bare, at = string.match(name, '^([^@]*)(@?)')
    if at ~= '' and amount == '1' and not string.find(bare, '.', 1, true) then
      whole[bare] = (whole[bare] or 0) + 1
    elseif not seen[bare] then
      seen[bare], words[#words + 1] = true, bare .. '=' .. amount
    end
  end
  for kind, count in pairs(whole) do words[#words + 1] = string.format('%s=%d', kind, count) end
  table.sort(words, function(a, b) return name_of(a) < name_of(b) end)
  return #words > 0 and ' ' .. table.concat(words, ' ') or ''
end

-- remake_line: return the line of a task that has lost it: by its place in the queue of a kind (with that kind and order), or by
-- its run (which tells slots and amounts; the message tells the name). Options and labels are lost. nil if nothing tells.
local function remake_line(id, kind, order, run, now)
  local line = {mark = redis.call('EXISTS', KEY.extra .. id) == 1 and '+' or '', takes = 0, ready = now, submitted = now,
    options = '-', order = order, kind = kind, life = order and string.format('%d', order % 1e12)}
  local lease = not order and run and parse_lease(place_of(run))
  if lease then
    local name, _, slots = name_in(redis.call('HGET', KEY.messages, id) or ''), string.gsub(lease.slots, '%d+', '')
    line.kind = name and name .. ' slots=' .. slots .. needs_text(lease.asked)
    adopt(run, line)
    line.order = line.life and string.format('%d', 9e12 + line.life % 1e12)
  end
  return line.kind and line.life and parse_line(line_text(line)) or nil
end
