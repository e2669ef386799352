-- commit: judge each claim by itself: are its slots free and its amounts left, and are the nodes as its scheduler saw them?
-- KEYS: meta slots free left inbox*
-- ARGV: count epoch (text seats bits inbox)*
--   epoch: that of the scheduler's copy of the partition; text: the place without its last word, ' since=MS'; seats: 'n1/3' or
--   'n1/3 n1/4'; bits: '17' or '17 18', theirs in `free`; inbox: which of the keys inbox*, from 1
-- RETURNS: {version, now_ms, (row, word, detail)*} of the rows, from 1, that are not held since now_ms:
--   yours (asked again), detail since when; changed (the nodes are others now), detail the present epoch; conflict, detail the
--   task that has the slot, '' if the slot is not usable; short, detail what is left
-- ERRORS: PSARGS
-- INVARIANT: a free bit is 1 exactly when the slot is usable and has no lease; what is left and what leases hold add up to
--   what the node declared; the first claim wins.
-- ATOMICITY: a claim takes all of its slots and amounts and rings its doorbell, or does nothing.
-- COMPLEXITY: O(slots claimed)
--- @include batch
--- @include clock
--- @include doorbell
--- @include ledger
--- @include lease
--- @include node
for _, row in rows() do -- nothing is written before every claim is well formed
  if not inbox_at(row.inbox) or not string.match(row.slots, '^%d+[%d,]*$') then
    return redis.error_reply('PSARGS commit: a claim names no inbox or no slot')
  end
end
local now, known = now_ms(), {}
local leases, ledgers, rung, bits = {}, {}, {}, {} -- written at the end; judge looks here first
local function judge(row)
  local task, attempt, name, inc, wanted, needs = row.task, row.attempt, row.node, row.inc, row.slots, row.needs
  if known[name] == nil then known[name] = read_node(nodes, name) or false end
  local node, numbers = known[name], {}
  if not node then return 'gone', '' end
  for number in string.gmatch(wanted, '%d+') do numbers[#numbers + 1] = tonumber(number) end
  for _, slot in ipairs(numbers) do
    local seat = name .. '/' .. slot
    if slot >= node.span or leases[seat] or redis.call('GETBIT', free, node.first + slot) == 0 then
      local lease = parse_lease(leases[seat] or redis.call('HGET', slots, seat))
      local own = lease and lease.task == task and lease.attempt == attempt and lease.inc == node.inc
      if own then return 'yours', lease.since end
      return 'conflict', lease and lease.task or ''
    end
  end
  if node.inc ~= inc then return 'changed', node.inc end
  if not fits(node.offer, needs) then return 'short', node.offer end
  local asked, asked_text = asked_amounts(needs)
  local ledger = next(asked) and (ledgers[name] or redis.call('HGET', left, name)) or ''
  local rest = amounts(ledger)
  if not amounts_fit(rest, asked) then return 'short', ledger end

  local at = row.inbox
  rung[at] = rung[at] or {}
  table.insert(rung[at], doorbell(task, attempt, wanted, inc, now))
  local lead = 'slots=' .. wanted .. (next(asked) and ' ' .. asked_text or '')
  for i, slot in ipairs(numbers) do
    leases[name .. '/' .. slot] = lease_text(task, attempt, inc, now, i == 1 and lead or 'lead=' .. numbers[1])
    bits[#bits + 1] = node.first + slot
  end
  if next(rest) then
    ledger_add(rest, asked, -1)
    ledgers[name] = ledger_text(rest)
  end
  return 'held', now
end

local reply = {0, now}
for i, row in rows() do
  reply[2 * i + 1], reply[2 * i + 2] = judge(row)
end
if #bits > 0 then
  write_all('HSET', slots, flat(leases))
  write_all('HSET', left, flat(ledgers))
  for _, bit in ipairs(bits) do redis.call('SETBIT', free, bit, 0) end
  for at, bells in pairs(rung) do
    local inbox = inbox_at(at)
    write_all('LPUSH', inbox, bells)
  end
  redis.call('HINCRBY', meta, 'free', -#bits)
  redis.call('HINCRBY', meta, 'version', 1)
end
reply[1] = tonumber(redis.call('HGET', meta, 'version') or 0)
return reply
