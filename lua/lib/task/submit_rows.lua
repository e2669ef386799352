-- Check the rows of submit. Lengths: parsync_redis/store/scripts/lengths.py.

-- parse_options: return the words NAME=VALUE of a row as a table; or nil and the error reply.
--   delay, expiry: in how many ms from now the task may be taken, and expires
--   start: in how many ms from now the task should start, at most a day ago or in a year; 10
--     minutes without it. See task/order.lua
--   max: the task's max_starts
--   any=1: the node on which the task ran last is as good as other nodes
--   wait: 1 if the task may wait for capacity that no node has yet, and for limits that nobody
--     knows yet; limits if it may wait for limits only, because its app declares them
--   after: the running attempt that submits what the same id does next (Celery's retry and replace)
--   pub: tells one publish of an id from the next. A new publish begins a new life of a task that
--     has ended, and is the successor of a task that runs, or has run and waits again. Without pub
--     an id is one task for ever.
local function parse_options(text)
  local options = {}
  for name, value in string.gmatch(text, '%f[!-~](%l+)=(%S+)') do
    options[name] = value
  end
  local refusal = options.max and bad_number('max_starts', options.max, 1, 1000)
    or options.delay and bad_number('delay_ms', options.delay, 0, 9e14)
    or options.expiry and bad_number('expiry_ms', options.expiry, -9e14, 9e14)
    or options.start and bad_number('start_ms', options.start, -86400000, 31536000000)
  if not refusal and options.pub and not string.find(options.pub, '^%w+$') then
    refusal = redis.error_reply('PSARGS a publication is letters and digits')
  end
  return not refusal and options or nil, refusal
end

-- reply_to_all: return the reply that has this word for every row.
local function reply_to_all(word)
  local reply = {}
  for i = 1, count do
    reply[2 * i - 1] = i
    reply[2 * i] = word
  end
  return reply
end

-- check_row: return the options of a row, nil if the row has none; or nil and the error reply for a
-- row that is malformed. kind: the fields of the row's kind, nil if the row names no kind.
local function check_row(kind, id, options)
  if not kind then
    return nil, redis.error_reply('PSARGS submit: a row names no kind')
  end
  if not string.find(id, '^[%w%%][%w%%_.:@+-]*$') then
    return nil, redis.error_reply('PSARGS an id is letters, digits, _.:@+- or %XX')
  end
  if options ~= '' then
    return parse_options(options)
  end
end

-- read_rows: return an error reply or nil, the ids of the rows, and {row -> options} of the rows
-- that have options.
local function read_rows(kinds_by_number)
  local refusal
  local ids = {}
  local options_of = {}
  for i, row in rows() do
    local id = row.id
    local kind = kinds_by_number[row.kind]
    ids[i] = id
    local is_uuid = #id <= 36 and string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+$')
    if not refusal and (row.options ~= '' or not kind or not is_uuid) then
      options_of[i], refusal = in_full().check_row(kind, id, row.options)
    end
  end
  return refusal, ids, options_of
end
