-- repair_kind: make the line and the version of a kind say what its queue says. Only damage makes
-- them differ.
-- KEYS: meta kinds changed pending:
-- ARGV: kind
-- RETURNS: 1 if it was repaired, 0 if it is sound
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: the queue of the kind stays as it is.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(log pending)
--- @include kind/index

-- is_sound: return whether the line and the version of a kind say what its queue says. No other
-- kind has the version.
local function is_sound(queue, line, version)
  local is_dated = version and tonumber(version) >= 1 and tonumber(version) <= COUNTED.version
    and #redis.call('ZRANGEBYSCORE', changed, version, version, 'LIMIT', 0, 2) == 1
  if queue.count == 0 then
    return not line and (is_dated or not version)
  end
  local size, first, last = parse_kind(line)
  return is_dated and size == queue.count and first == queue.first and last >= queue.last
end

local kind = args.kind
local refusal = bad_kind(pending_prefix, kind)
if refusal then
  return refusal
end
local queue = QUEUES[kind]
queue.first = order_at(queue.pending, 0)
queue.last = order_at(queue.pending, -1)
local line = redis.call('HGET', kinds, kind)
if is_sound(queue, line, redis.call('ZSCORE', changed, kind)) then
  return 0
end
redis.call('HDEL', kinds, kind) -- HDEL comes first, see docs/decisions/0015
touch(kind)
write_kinds(meta, kinds, changed)
return 1
