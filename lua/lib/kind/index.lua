-- Write the index of kinds: the lines that change, and their versions.
--- @include call/clock
--- @include kind/waiting
--- @include kind/line

local LINES_READ = false

-- read_lines: read the line of each kind that was looked at, before the first write.
local function read_lines(kinds)
  local names, n = {}, 0
  for kind, queue in pairs(QUEUES) do
    if queue.before > 0 and not queue.read then
      n = n + 1
      names[n], queue.read = kind, true
    end
  end
  if n == 0 and #TOUCHED > 0 and not LINES_READ then redis.call('HEXISTS', kinds, '') end
  LINES_READ = LINES_READ or #TOUCHED > 0
  if n == 0 then return end
  local lines = read_list(kinds, names)
  for i = 1, n do QUEUES[names[i]].known = lines[i] or nil end
end

local ANNOUNCED, LAST = 0 -- how many of TOUCHED have their version; the last version

-- announce: give each kind that changes its version; return the last. A version is the time, in hundredths of a ms,
-- or one more than the last: a server that lost writes must not count up to a version that a scheduler's copy has. A clock far in
-- the future gives no version of 16 digits. As a first write it does no harm, and a full server refuses it (docs/decisions/0015).
local function announce(changed)
  local last = #TOUCHED
  if last == 0 then return COUNTED.version end
  if ANNOUNCED < last then
    local versions, base = {}, math.max(COUNTED.version, math.min(now_ms() * 100 - 1, 9e14))
    LAST = base + last
    for i = ANNOUNCED + 1, last do
      versions[#versions + 1], versions[#versions + 2] = string.format('%d', base + i), TOUCHED[i]
    end
    ANNOUNCED = last
    write_all('ZADD', changed, versions)
  end
  return LAST
end

-- write_kinds: write the queues and lines that changed, each with a version of its own. Return whether tasks wait of a kind of
-- which none waited before: then a scheduler is to be woken.
local function write_kinds(meta, kinds, changed)
  if APART then return false end
  local began, lines, ended = false, {}, {}
  read_lines(kinds)
  local version = announce(changed)
  if version > COUNTED.version then -- HINCRBY, which clients may: not HSET, by which they could write any text
    redis.call('HINCRBY', meta, 'version', string.format('%d', version - COUNTED.version))
  end
  for _, kind in ipairs(TOUCHED) do
    local queue = QUEUES[kind]
    fill(queue)
    if queue.count == 0 then
      ended[#ended + 1] = kind
    else
      queue.line = kind_line(queue, queue.known)
      lines[#lines + 1], lines[#lines + 2] = kind, queue.line
      began = began or queue.before == 0
    end
  end
  write_all('HSET', kinds, lines)
  write_all('HDEL', kinds, ended)
  COUNTED.now = version
  return began
end
