-- deal_node: assign a node to a partition, so that every partition gets about the same mix of
-- scores and labels.
-- KEYS: dealt
-- ARGV: node partitions labels slots score
--   node: '' removes all sums that are 0
--   labels: the node's labels as text
--   slots: '0' forgets the node
-- RETURNS: the number of the partition
-- ERRORS: PSARGS
-- INVARIANT: a node stays in its partition, where its leases are. A sum of 0 is removed, because
--   labels come and go.
-- ATOMICITY: the partition of the node, and the sums that decide the next deal, change together.
-- COMPLEXITY: O(partitions); node '': O(fields)
local partitions = tonumber(args.partitions)
local slots = tonumber(args.slots)
local score = tonumber(args.score)

-- is_whole: return whether a number is a whole number from low to high.
local function is_whole(number, low, high)
  return number and number >= low and number <= high and number % 1 == 0
end

-- forget_empty_sums: remove the sums of slots that are 0.
local function forget_empty_sums()
  local fields = redis.call('HGETALL', dealt)
  for i = 1, #fields, 2 do
    local of_slots = string.find(fields[i], '^class:') or string.find(fields[i], '^slots:')
    if of_slots and (tonumber(fields[i + 1]) or 0) <= 0 then
      redis.call('HDEL', dealt, fields[i])
    end
  end
end

-- delete_damaged: delete a sum that is no number of this form.
local function delete_damaged(field, form)
  local sum = redis.call('HGET', dealt, field)
  if sum and not (#sum < 30 and string.find(sum, form)) then
    redis.call('HDEL', dealt, field)
  end
end

-- add_slots: add to the sums of a partition. Deletes a sum of slots that comes to 0; the score goes
-- with the last slot of the partition.
local function add_slots(partition, labels, more_slots, more_score)
  local class_field = 'class:' .. partition .. ':' .. labels
  local slots_field = 'slots:' .. partition
  local score_field = 'score:' .. partition
  delete_damaged(class_field, '^%-?%d+$')
  delete_damaged(slots_field, '^%-?%d+$')
  delete_damaged(score_field, '^%-?%d+%.?%d*$')
  if redis.call('HINCRBY', dealt, class_field, more_slots) <= 0 then
    redis.call('HDEL', dealt, class_field)
  end
  redis.call('HINCRBYFLOAT', dealt, score_field, string.format('%.6f', more_score))
  if redis.call('HINCRBY', dealt, slots_field, more_slots) <= 0 then
    redis.call('HDEL', dealt, slots_field, score_field)
  end
end

-- rank_partition: return the slots of a partition with just the labels of this node, the slots, and
-- the sum of score times slots.
local function rank_partition(partition)
  local class_field = 'class:' .. partition .. ':' .. args.labels
  local rank = redis.call('HMGET', dealt, class_field, 'slots:' .. partition, 'score:' .. partition)
  for i = 1, 3 do
    rank[i] = tonumber(rank[i]) or 0
  end
  return rank
end

-- is_lower: return whether a rank comes before another rank.
local function is_lower(rank, other_rank)
  for i = 1, 3 do
    if rank[i] ~= other_rank[i] then
      return rank[i] < other_rank[i]
    end
  end
  return false
end

-- choose_partition: return the partition of the lowest rank: the partition with the fewest slots of
-- just the node's labels.
local function choose_partition()
  local lowest = rank_partition(0)
  local choice = 0
  for partition = 1, partitions - 1 do
    local rank = rank_partition(partition)
    if is_lower(rank, lowest) then
      lowest = rank
      choice = partition
    end
  end
  return choice
end

-- take_back: subtract an earlier deal of the node from the sums. Return the partition of the deal,
-- nil for a text that is no deal.
local function take_back(deal)
  local partition, old_slots, old_score, old_labels =
    string.match(deal or '', '^p(%d+) slots=(%d+) score=([%d.e+-]+) ?(.*)$')
  if not partition or #partition >= 5 or not tonumber(old_score) then
    return nil
  end
  add_slots(tonumber(partition), old_labels, -old_slots, -old_slots * old_score)
  return tonumber(partition)
end

-- write_deal: write the partition of the node, and add the node to the sums.
local function write_deal(partition)
  add_slots(partition, args.labels, slots, slots * score)
  local text = string.format('p%d slots=%d score=%s %s', partition, slots, args.score, args.labels)
  redis.call('HSET', dealt, 'node:' .. args.node, text)
end

local is_sound = is_whole(partitions, 1, 4096) and is_whole(slots, 0, 10000)
if not (is_sound and score and math.abs(score) <= 1e9) then
  return redis.error_reply('PSARGS deal_node: partitions, slots or score is out of range')
end
if args.node == '' then
  forget_empty_sums()
  return 0
end
local deal_before = redis.call('HGET', dealt, 'node:' .. args.node)
if slots == 0 then
  redis.call('HDEL', dealt, 'node:' .. args.node) -- HDEL comes first, see docs/decisions/0015
end
local partition = take_back(deal_before) or choose_partition()
if slots > 0 then
  write_deal(partition)
end
return partition
