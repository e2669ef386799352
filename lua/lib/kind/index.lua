-- Write the index of kinds: the lines that change, and their versions.
--- @include call/clock
--- @include kind/waiting
--- @include kind/line

local HAS_READ_KINDS = false -- whether this call has read the hash `kinds`

-- read_lines: read the line of each kind that the call has looked at, before the first write. Reads
-- the hash at least once before a kind changes: a key of another type raises an error there.
local function read_lines(kinds)
  local names = {}
  local has_changed = false -- whether a kind changes
  for kind, queue in pairs(QUEUES) do
    if queue.before > 0 and queue.known == nil then
      names[#names + 1] = kind
    end
    has_changed = has_changed or queue.touched
  end
  if #names == 0 and has_changed and not HAS_READ_KINDS then
    redis.call('HEXISTS', kinds, '')
  end
  HAS_READ_KINDS = HAS_READ_KINDS or has_changed
  if #names == 0 then
    return
  end
  local lines = read_list(kinds, names)
  for i, kind in ipairs(names) do
    QUEUES[kind].known = lines[i]
  end
end

local ANNOUNCED = 0 -- how many kinds of TOUCHED have their new version
local LAST_VERSION = 0 -- the last version that the call has given, 0 before begin_versions

-- begin_versions: let LAST_VERSION be the version before the next one that the call gives. Versions
-- are for kinds that change, and for tasks that are submitted. A version is the time in hundredths
-- of a ms since 1970, or one more than the last version if that is larger. So a server that lost
-- writes does not repeat a version that a scheduler's copy has, and a clock that is set back
-- changes no order. A clock far in the future gives no version of 16 digits. A clock in the past
-- gives versions of 2020-01-02: an order has the time a day before, at the earliest.
local function begin_versions()
  if LAST_VERSION == 0 then
    local time = math.min(now_ms() * 100 - 1, 9e14)
    LAST_VERSION = math.max(COUNTED.version, time, 157792320000000)
  end
end

-- announce: write a new version of each kind that changes into `changed`. ZADD may be the first
-- write of a script: a full server refuses ZADD before anything is written (docs/decisions/0015).
local function announce(changed)
  if ANNOUNCED == #TOUCHED then
    return
  end
  begin_versions()
  local versions = {}
  for i = ANNOUNCED + 1, #TOUCHED do
    LAST_VERSION = LAST_VERSION + 1
    versions[#versions + 1] = string.format('%d', LAST_VERSION)
    versions[#versions + 1] = TOUCHED[i]
  end
  ANNOUNCED = #TOUCHED
  write_all('ZADD', changed, versions)
end

-- write_version: write the last version that the call has given. COUNTED.now is the version that
-- the queue has then, COUNTED.version the version before the call.
local function write_version(meta)
  local before = COUNTED.now or COUNTED.version
  COUNTED.now = math.max(before, LAST_VERSION)
  if LAST_VERSION > before then
    -- HINCRBY and not HSET: a client's login may call HINCRBY, which writes only numbers.
    redis.call('HINCRBY', meta, 'version', string.format('%d', LAST_VERSION - before))
  end
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
  announce(changed)
  write_version(meta)
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
  return has_new_kind
end
