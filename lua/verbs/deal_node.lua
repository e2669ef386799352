-- deal_node: assign a node to a partition, so that every partition gets about the same mix of scores and labels.
-- KEYS: dealt
-- ARGV: node partitions labels slots score
--   labels: the node's labels as text; slots '0' forgets the node; node '' removes all sums that are 0
-- RETURNS: the partition's number
-- ERRORS: PSARGS
-- INVARIANT: a node stays in its partition, where its leases are. A sum that comes to 0 is removed: labels come and go.
-- ATOMICITY: the node's partition and the sums that decide the next deal change together.
-- COMPLEXITY: O(partitions); node '': O(fields)
local name, partitions = args.node, tonumber(args.partitions)
local labels, slots, score = args.labels, tonumber(args.slots), tonumber(args.score)
if not (partitions and partitions >= 1 and partitions <= 4096 and slots and slots >= 0 and slots <= 10000 and
    partitions % 1 == 0 and slots % 1 == 0 and score and math.abs(score) <= 1e9) then
  return redis.error_reply('PSARGS deal_node: partitions, slots or score is out of range')
end

-- sums: return a partition's slots with just these labels, its slots, and the sum of score times slots.
local function sums(partition)
  local found = redis.call('HMGET', dealt, 'class:' .. partition .. ':' .. labels, 'slots:' .. partition,
    'score:' .. partition)
  return tonumber(found[1]) or 0, tonumber(found[2]) or 0, tonumber(found[3]) or 0
end

-- add: add to the sums of a partition; those of slots go at 0, and the score with the last slot of the partition.
local function add(partition, class, more_slots, more_score)
  local class_field, slots_field = 'class:' .. partition .. ':' .. class, 'slots:' .. partition
  local score_field = 'score:' .. partition
  for _, field in ipairs({class_field, slots_field, score_field}) do
    local form = field == score_field and '^%-?%d+%.?%d*$' or '^%-?%d+$'
    local sum = redis.call('HGET', dealt, field)
    if sum and not (#sum < 30 and string.find(sum, form)) then redis.call('HDEL', dealt, field) end -- damaged
  end
  if redis.call('HINCRBY', dealt, class_field, more_slots) <= 0 then redis.call('HDEL', dealt, class_field) end
  redis.call('HINCRBYFLOAT', dealt, score_field, string.format('%.6f', more_score))
  if redis.call('HINCRBY', dealt, slots_field, more_slots) <= 0 then
    redis.call('HDEL', dealt, slots_field, score_field)
  end
end

if name == '' then
  local fields = redis.call('HGETALL', dealt)
  for i = 1, #fields, 2 do
    local of_slots = string.find(fields[i], '^class:') or string.find(fields[i], '^slots:')
    if of_slots and (tonumber(fields[i + 1]) or 0) <= 0 then redis.call('HDEL', dealt, fields[i]) end
  end
  return 0
end

local before, home = redis.call('HGET', dealt, 'node:' .. name), nil
if slots == 0 then redis.call('HDEL', dealt, 'node:' .. name) end -- first: a full server allows it
local old, old_slots, old_score, old_labels =
  string.match(before or '', '^p(%d+) slots=(%d+) score=([%d.e+-]+) ?(.*)$')
if old and #old < 5 and tonumber(old_score) then
  home = tonumber(old)
  add(home, old_labels, -old_slots, -old_slots * old_score)
else
  local best
  for partition = 0, partitions - 1 do
    local rank = {sums(partition)}
    local better = not best
    for i = 1, 3 do
      if not better and rank[i] ~= best[i] then
        better = rank[i] < best[i]
        break
      end
    end
    if better then best, home = rank, partition end
  end
end
if slots > 0 then
  add(home, labels, slots, slots * score)
  redis.call('HSET', dealt, 'node:' .. name, string.format('p%d slots=%d score=%s %s', home, slots, args.score, labels))
end
return home
