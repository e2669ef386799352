-- Check the rows of submit. Lengths: parsync_redis/store/scripts/lengths.py.

-- options_of: return the words NAME=VALUE of a row as a table; or nil and the error reply. delay and expiry: in ms from now,
-- until it can be taken and until it expires; max: its max_starts; any=1: its last node is as good as others; wait=1: it may
-- wait for capacity that no node has yet; after: the running attempt that submits what the same id does next (Celery's retry
-- and replace); pub tells one publish of an id from the next: a new publish begins a new life of a task that has ended, and is
-- the successor of one that runs, or has run and waits again. Without pub an id is one task for ever.
local function options_of(text)
  local found = {}
  for name, value in string.gmatch(text, '%f[!-~](%l+)=(%S+)') do found[name] = value end
  local bad = found.max and bad_number('max_starts', found.max, 1, 1000)
    or found.delay and bad_number('delay_ms', found.delay, 0, 9e14)
    or found.expiry and bad_number('expiry_ms', found.expiry, -9e14, 9e14)
    or found.pub and not string.find(found.pub, '^%w+$') and redis.error_reply('PSARGS a publication is letters and digits')
  return not bad and found or nil, bad
end

-- for_all: return the reply that has this word for every row.
local function for_all(word)
  local reply = {}
  for i = 1, count do reply[2 * i - 1], reply[2 * i] = i, word end
  return reply
end

-- is_unusual: return whether an id is no UUID.
local function is_unusual(id)
  return #id > 36 or not string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+$')
end

-- look_at_row: return the options of a row, nil if it has none; or nil and the error reply for a row that is none.
local function look_at_row(kind, id, options)
  if not kind then return nil, redis.error_reply('PSARGS submit: a row names no kind') end
  if not string.find(id, '^[%w%%][%w%%_.:@+-]*$') then
    return nil, redis.error_reply('PSARGS an id is letters, digits, _.:@+- or %XX')
  end
  if options ~= '' then return options_of(options) end
end
