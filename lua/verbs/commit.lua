-- commit: judge each claim by itself: are its slots free and its amounts left, and are the nodes as its scheduler saw them?
-- KEYS: meta slots free left changed inbox*
-- READS: meta slots free left changed inbox
-- ARGV: count epoch (text seats bits inbox)*
--   epoch: that of the scheduler's copy of the partition; text: the place without its last word, ' since=MS'; seats: 'n1/3' or
--   'n1/3 n1/4'; bits: '17' or '17 18', theirs in `free`; inbox: which of the keys inbox*, from 1
-- RETURNS: {version, now_ms, (row, word, detail)*} of the rows, from 1, that are not held since now_ms:
--   yours (asked again), detail since when; changed (the nodes are others now), detail the present epoch; conflict, detail the
--   task that has the slot, '' if the slot is not usable; short, detail the amounts left. If a claim got devices, its word is
--   held or yours, and its detail since when and the amounts that it holds: '1732161994123 gpu@1=0.5'
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: a free bit is 1 exactly when the slot is usable and has no lease; what is left and what leases hold add up to
--   what the node declared; the first claim wins.
-- ATOMICITY: a claim takes all of its slots and amounts and rings its doorbell, or does nothing.
-- COMPLEXITY: O(slots claimed)
--- @include call/batch
--- @include call/bitmap
--- @include place/claims
--- @include call/clock
--- @include call/hash_numbers
--- @include place/doorbell
--- @include node/ledger_writes
local wrong, seats, bits, first, names = read_claims()
if wrong then return wrong end
local damaged, epoch, version, total = read_counts(meta, 'epoch', 'version', 'free')
if damaged then return damaged end
local leases, ledgers, open = read_list(slots, seats), read_ledgers(left, names, count), read_bits(free, bits)
local held, rung, taken, ops, t, o = {}, {}, {}, {}, 0, 0 -- held: {seat -> its new lease}; taken: seats and leases
local reply, same = {0, now_ms()}, epoch == args.epoch
local since = ' since=' .. reply[2]

-- judge: return nil for a claim that wins, and the text of its amounts if it got devices; else why not, and the detail.
local function judge(i, text)
  local lease = leases[first[i]] or held[seats[first[i]]]
  local before = lease and string.sub(lease, 1, #text) == text and string.match(lease, '^ since=(%d+)$', #text + 1)
  if lease and names[i] and not before then before = in_full().held_since(lease, text) end
  if before then return 'yours', before end
  if not same then return 'changed', epoch or '0' end
  for at = first[i], first[i + 1] - 1 do
    lease = leases[at] or held[seats[at]]
    if lease or open[at] == 0 then return 'conflict', string.match(lease or '', '^%S*') end
  end
  if not names[i] then return nil end
  local short, got = spend(ledgers, names[i], text)
  if short then return 'short', short end
  return nil, got
end

for i, row in rows() do
  local text, inbox = row.text, row.inbox
  local word, detail = judge(i, text)
  if detail then
    local r = #reply
    reply[r + 1], reply[r + 2], reply[r + 3] = i, word or 'held', word and detail or reply[2] .. ' ' .. detail
  end
  if not word then
    local lease, bells = (detail and in_full().held_text(text, detail) or text) .. since, rung[inbox]
    if bells then bells[#bells + 1] = lease else rung[inbox] = {lease} end
    for at = first[i], first[i + 1] - 1 do
      local seat = seats[at]
      held[seat], taken[t + 1], taken[t + 2] = lease, seat, lease
      ops[o + 1], ops[o + 2], ops[o + 3], ops[o + 4] = 'SET', 'u1', bits[at], '0'
      t, o = t + 2, o + 4
    end
  end
end
if o > 0 then
  version = (version or 0) + 1
  look_at_changed(changed)
  damaged = ring_all(rung)
  if damaged then return damaged end
  write_all('HSET', slots, taken)
  write_ledgers(left, changed, version)
  write_bits_at(free, ops)
  redis.call('HSET', meta, 'version', version, 'free', (total or 0) - o / 4)
end
reply[1] = tonumber(version or 0)
return reply
