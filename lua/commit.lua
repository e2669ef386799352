-- commit: each claim is judged by itself: its slots free and its amounts left, on the node that the scheduler looked at.
-- KEYS: meta slots free left nodes inbox*
-- ARGV: count (task attempt inbox node inc slots needs)*
--   inbox counts the keys behind `nodes`, from 1; slots is '3' or '3,4'; needs is what fits.lua reads
-- RETURNS: {version, now_ms, (word, detail)*}
--   held or yours (asked again), detail since when; conflict, detail the task that has the slot, or '' where it is not
--   usable; short, detail what is left; changed, detail the node's incarnation; gone, detail ''
-- ERRORS: PSARGS
-- INVARIANT: a free bit is 1 exactly when the slot is usable and has no lease; what is left and what leases hold make up
--   what the node declared; first claim wins.
-- ATOMICITY: a claim takes all of its slots and amounts, and rings its doorbell, or does nothing.
-- COMPLEXITY: O(slots claimed)
--- @include arguments
--- @include clock
--- @include ledger
--- @include node
--- @include lease
--- @include doorbell
local meta, slots, free, left, nodes = unpack(KEYS, 1, 5)
local count = tonumber(ARGV[1]) or 0
local bad = bad_count('commit', #KEYS, 1 + 7 * count)
if bad then return bad end
for i = 1, count do -- nothing is written before every claim is well formed
  if not KEYS[5 + ARGV[7 * i - 3]] or not string.match(ARGV[7 * i], '^%d+[%d,]*$') then
    return redis.error_reply('PSARGS commit: a claim names no inbox or no slot')
  end
end
local now, seen, changed = now_ms(), {}, 0

local function judge(task, attempt, inbox, name, inc, wanted, needs)
  if seen[name] == nil then seen[name] = read_node(nodes, name) or false end
  local node = seen[name]
  if not node then return 'gone', '' end
  local numbers = {}
  for number in string.gmatch(wanted, '%d+') do numbers[#numbers + 1] = tonumber(number) end
  for _, slot in ipairs(numbers) do
    if slot >= node.span or redis.call('GETBIT', free, node.first + slot) == 0 then
      local lease = parse_lease(redis.call('HGET', slots, name .. '/' .. slot))
      if lease and lease.task == task and lease.attempt == attempt and lease.inc == node.inc then
        return 'yours', lease.since
      end
      return 'conflict', lease and lease.task or ''
    end
  end
  if node.inc ~= inc then return 'changed', node.inc end
  if not fits(node.offer, needs) then return 'short', node.offer end
  local asked = amounts(needs)
  asked.slots = nil
  local ledger = next(asked) and redis.call('HGET', left, name) or ''
  local rest = amounts(ledger)
  if not amounts_fit(rest, asked) then return 'short', ledger end

  redis.call('LPUSH', inbox, doorbell(task, attempt, wanted, inc, now))
  local lead = 'slots=' .. wanted .. (next(asked) and ' ' .. ledger_text(asked) or '')
  for i, slot in ipairs(numbers) do
    redis.call('SETBIT', free, node.first + slot, 0)
    redis.call('HSET', slots, name .. '/' .. slot,
      lease_text(task, attempt, inc, now, i == 1 and lead or 'lead=' .. numbers[1]))
  end
  if next(rest) then
    ledger_add(rest, asked, -1)
    redis.call('HSET', left, name, ledger_text(rest))
  end
  changed = changed + #numbers
  return 'held', now
end

local reply = {0, now}
for i = 1, count do
  local task, attempt, inbox, name, inc, wanted, needs = unpack(ARGV, 7 * i - 5, 7 * i + 1)
  reply[2 * i + 1], reply[2 * i + 2] = judge(task, attempt, KEYS[5 + inbox], name, inc, wanted, needs)
end
if changed > 0 then
  redis.call('HINCRBY', meta, 'free', -changed)
  redis.call('HINCRBY', meta, 'version', 1)
end
reply[1] = tonumber(redis.call('HGET', meta, 'version') or 0)
return reply
