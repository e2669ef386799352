-- repair_kind: make the line of a kind, and its version, what its queue says; only damage makes them differ.
-- KEYS: meta kinds changed pending:
-- ARGV: kind
-- RETURNS: 1 if it was repaired, 0 if it is sound
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: the queue of the kind stays as it is.
-- ATOMICITY: whole.
-- COMPLEXITY: O(log pending)
--- @include kind/index
local kind = args.kind
local bad = bad_kind(pending_prefix, kind)
if bad then return bad end
local queue, line = QUEUES[kind], redis.call('HGET', kinds, kind)
queue.first, queue.last = order_at(queue.pending, 0), order_at(queue.pending, -1)
local size, first, last = parse_kind(line)
local version = redis.call('ZSCORE', changed, kind)
local known = version and tonumber(version) <= COUNTED.version
if queue.count == 0 then
  if not line and (known or not version) then return 0 end
elseif known and size == queue.count and first == queue.first and last >= queue.last then
  return 0
end
redis.call('HDEL', kinds, kind) -- first: a full server allows it, docs/decisions/0015
touch(kind)
write_kinds(meta, kinds, changed)
return 1
