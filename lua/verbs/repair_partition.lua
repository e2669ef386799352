-- repair_partition: remove corrupt values from a partition, and rebuild what follows from the rest.
-- KEYS: meta slots free left changed nodes alive lost notes, of any type
-- ARGV: how
--   how: 'look' only reports what is corrupt or contradicts the rest
--     'open' repairs what 'look' reports
--     'shut' repairs what cannot be read, and sets no bit to 1: leases may be lost, and the leader
--       puts them back before it calls with 'open'
-- RETURNS: (key, field, text)* of what was corrupt; if nothing was, nothing has changed
-- ERRORS: PSARGS
-- INVARIANT: a sound lease stays. A record that contradicts the counter of a node that is up
--   follows the counter, unless only the record's incarnation has leases. A node whose record is
--   corrupt is down, with as many slots as its leases need: the leader recovers the leases, and the
--   agent registers again. A drain survives in the record or in the note.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(slots of the partition)
--- @include repair/damage
--- @include repair/rebuild

-- remove_corrupt: remove the corrupt fields of those keys that the script does not write anew as a
-- whole.
local function remove_corrupt(damage)
  for i = 1, #damage.reports, 3 do
    local any = damage.reports[i]
    if any ~= free and any ~= lost and any ~= changed then
      redis.call('HDEL', any, damage.reports[i + 1])
    end
  end
end

-- remove_keys: remove the keys of another type.
local function remove_keys(damage)
  for any, is_of_other_type in pairs(damage.corrupt) do
    if is_of_other_type then
      redis.call('DEL', any)
    end
  end
end

local how = args.how
if how ~= 'look' and how ~= 'open' and how ~= 'shut' then
  return redis.error_reply('PSARGS how is look, open or shut')
end
local damage = find_damage(how ~= 'shut')
if #damage.reports == 0 or how == 'look' then
  return damage.reports
end
remove_keys(damage)
local bits = how == 'shut' and (redis.call('GET', free) or '') or nil
for name, span in pairs(damage.needed) do
  damage.sound[name] = make_node(name, span)
end
remove_corrupt(damage)
rebuild(damage.sound, bits)
return damage.reports
