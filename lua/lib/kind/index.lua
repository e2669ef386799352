-- Write the index of kinds: the lines that change, and their versions.
--- @include call/clock
--- @include kind/waiting
--- @include kind/line

local HAS_READ_KINDS = false -- whether this call has read the hash `kinds`

-- read_lines: read the line of each kind that the call has looked at, before the first write. Reads
-- the hash at least once before a kind changes: a key of another type raises an error there.
local function read_lines(kinds)
  local names = {}
  for kind, queue in pairs(QUEUES) do
    if queue.before > 0 and not queue.read then
      names[#names + 1] = kind
      queue.read = true
    end
  end
  if #names == 0 and #TOUCHED > 0 and not HAS_READ_KINDS then
    redis.call('HEXISTS', kinds, '')
  end
  HAS_READ_KINDS = HAS_READ_KINDS or #TOUCHED > 0
  if #names == 0 then
    return
  end
  local lines = read_list(kinds, names)
  for i, kind in ipairs(names) do
    QUEUES[kind].known = lines[i] or nil
  end
end

local ANNOUNCED = 0 -- how many kinds of TOUCHED have their new version
local LAST_VERSION = 0 -- the version that announce gave last

-- announce: write a new version of each kind that changes into `changed`; return the last version.
-- A version is the time in hundredths of a ms, or one more than the last version if that is larger.
-- So a server that lost writes does not repeat a version that a scheduler's copy has. A clock far
-- in the future gives no version of 16 digits. ZADD may be the first write of a script: a full
-- server refuses ZADD before anything is written (docs/decisions/0015).
local function announce(changed)
  local size = #TOUCHED
  if size == 0 then
    return COUNTED.version
  end
  if ANNOUNCED < size then
    local versions = {}
    local base = math.max(COUNTED.version, math.min(now_ms() * 100 - 1, 9e14))
    LAST_VERSION = base + size
    for i = ANNOUNCED + 1, size do
      versions[#versions + 1] = string.format('%d', base + i)
      versions[#versions + 1] = TOUCHED[i]
    end
    ANNOUNCED = size
    write_all('ZADD', changed, versions)
  end
  return LAST_VERSION
end

-- write_kinds: write the queues and lines that changed, each with a version of its own. Return
-- whether tasks wait of a kind of which no task waited before: then a scheduler is to be woken.
local function write_kinds(meta, kinds, changed)
  if APART then
    return false
  end
  local has_new_kind = false
  local lines = {}
  local ended = {}
  read_lines(kinds)
  local version = announce(changed)
  if version > COUNTED.version then
    -- HINCRBY and not HSET: a client's login may call HINCRBY, which writes only numbers.
    redis.call('HINCRBY', meta, 'version', string.format('%d', version - COUNTED.version))
  end
  for _, kind in ipairs(TOUCHED) do
    local queue = QUEUES[kind] -- nil for an account
    if queue then
      write_entering(queue)
    end
    if queue and queue.count == 0 then
      ended[#ended + 1] = kind
    elseif queue then
      queue.line = kind_line(queue, queue.known)
      lines[#lines + 1] = kind
      lines[#lines + 1] = queue.line
      has_new_kind = has_new_kind or queue.before == 0
    end
  end
  write_all('HSET', kinds, lines)
  write_all('HDEL', kinds, ended)
  COUNTED.now = version
  return has_new_kind
end
