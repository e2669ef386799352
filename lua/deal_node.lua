-- deal_node: which partition a node belongs to: so that every partition holds about the same mix of scores and labels.
-- KEYS: dealt
-- ARGV: node partitions class slots score
--   class is the node's labels as text; slots '0' forgets the node
-- RETURNS: the partition's number
-- ERRORS: PSARGS
-- INVARIANT: a node that was dealt stays in its partition, where its leases are.
-- ATOMICITY: the node's partition and the sums that the next deal goes by change together.
-- COMPLEXITY: O(partitions)
--- @include arguments
local bad = bad_count('deal_node', 1, 5)
if bad then return bad end
local dealt, name, partitions = KEYS[1], ARGV[1], tonumber(ARGV[2])
local class, slots, score = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if not (partitions and partitions >= 1 and partitions <= 4096 and slots and slots >= 0 and slots <= 10000 and
    partitions % 1 == 0 and slots % 1 == 0 and score and math.abs(score) <= 1e9) then
  return redis.error_reply('PSARGS deal_node: partitions, slots or score is out of range')
end

-- Sums of a partition: slots of this class, slots of all, and score times slots of all.
local function sums(partition, of_class)
  local found = redis.call('HMGET', dealt, 'class:' .. partition .. ':' .. of_class, 'slots:' .. partition,
    'score:' .. partition)
  return tonumber(found[1]) or 0, tonumber(found[2]) or 0, tonumber(found[3]) or 0
end

local function add(partition, of_class, more_slots, more_score)
  for _, field in ipairs({'class:' .. partition .. ':' .. of_class, 'slots:' .. partition, 'score:' .. partition}) do
    local form = string.find(field, '^score:') and '^%-?%d+%.?%d*$' or '^%-?%d+$'
    local sum = redis.call('HGET', dealt, field)
    if sum and not (string.find(sum, form) and #sum < 30) then redis.call('HDEL', dealt, field) end -- damaged
  end
  redis.call('HINCRBY', dealt, 'class:' .. partition .. ':' .. of_class, more_slots)
  redis.call('HINCRBY', dealt, 'slots:' .. partition, more_slots)
  redis.call('HINCRBYFLOAT', dealt, 'score:' .. partition, string.format('%.6f', more_score))
end

local before, home = redis.call('HGET', dealt, 'node:' .. name), nil
if slots == 0 then redis.call('HDEL', dealt, 'node:' .. name) end -- first: a full server lets pass what begins so
local partition, old_slots, old_score, old_class =
  string.match(before or '', '^p(%d+) slots=(%d+) score=([%d.e+-]+) ?(.*)$')
if partition and #partition < 5 and tonumber(old_score) then
  home = tonumber(partition)
  add(home, old_class, -old_slots, -old_slots * old_score)
else
  local best
  for partition = 0, partitions - 1 do
    local rank = {sums(partition, class)}
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
  add(home, class, slots, slots * score)
  redis.call('HSET', dealt, 'node:' .. name, string.format('p%d slots=%d score=%s %s', home, slots, ARGV[5], class))
end
return home
