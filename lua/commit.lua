-- commit: judge each claim by itself: are its slots free and its amounts left, and are the nodes as its scheduler saw them?
-- KEYS: meta slots free left inbox*
-- READS: meta slots free left inbox
-- ARGV: count epoch (text seats bits inbox)*
--   epoch: that of the scheduler's copy of the partition; text: the place without its last word, ' since=MS'; seats: 'n1/3' or
--   'n1/3 n1/4'; bits: '17' or '17 18', theirs in `free`; inbox: which of the keys inbox*, from 1
-- RETURNS: {version, now_ms, (row, word, detail)*} of the rows, from 1, that are not held since now_ms:
--   yours (asked again), detail since when; changed (the nodes are others now), detail the present epoch; conflict, detail the
--   task that has the slot, '' if the slot is not usable; short, detail what is left
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: a free bit is 1 exactly when the slot is usable and has no lease; what is left and what leases hold add up to
--   what the node declared; the first claim wins.
-- ATOMICITY: a claim takes all of its slots and amounts and rings its doorbell, or does nothing.
-- COMPLEXITY: O(slots claimed)
--- @include batch
--- @include bits
--- @include clock
--- @include counts
--- @include doorbell
--- @include ledger
local find, match, byte = string.find, string.match, string.byte
local seats, bits, first, names, n = {}, {}, {}, {}, 0 -- row i has first[i] to first[i + 1] - 1; names[i]: if it asks amounts
for i, row in rows() do
  local seat, text = row.seats, row.text
  first[i] = n + 1
  if find(seat, ' ', 1, true) then
    add_words(seats, seat)
    add_words(bits, row.bits)
    n = #seats
  else
    n = n + 1
    seats[n], bits[n] = seat, row.bits
  end
  if bits[n + 1] or not bits[n] or not inbox_at(row.inbox) then
    return redis.error_reply('PSARGS commit: a claim names no inbox, or not one bit for each slot')
  end
  names[i] = asks_amounts(text) and match(seat, '^([^ /]*)/')
end
first[count + 1] = n + 1
local damaged, epoch, version, total = read_counts(meta, 'epoch', 'version', 'free')
if damaged then return damaged end
local map, leases, ledgers = redis.call('GET', free) or '', read_list(slots, seats), read_ledgers(left, names, count)
local held, rung, taken, ops, o = {}, {}, {}, {}, 0 -- held: seat -> its new lease; taken: seats and leases; ops: of BITFIELD
local reply, same = {0, now_ms()}, epoch == args.epoch
local since = ' since=' .. reply[2]

-- judge: return nil for a claim that wins, else why not, and the detail.
local function judge(i, text)
  local lease = leases[first[i]] or held[seats[first[i]]]
  local before = lease and string.sub(lease, 1, #text) == text and match(lease, '^ since=(%d+)$', #text + 1)
  if before then return 'yours', before end
  if not same then return 'changed', epoch or '0' end
  for at = first[i], first[i + 1] - 1 do
    lease = leases[at] or held[seats[at]]
    if lease or not bit_at(map, bits[at]) then return 'conflict', match(lease or '', '^%S*') end
  end
  local short = names[i] and spend(ledgers, names[i], text)
  if short then return 'short', short end
end

for i, row in rows() do
  local text, inbox = row.text, row.inbox
  local word, detail = judge(i, text)
  if word then
    local r = #reply
    reply[r + 1], reply[r + 2], reply[r + 3] = i, word, detail
  else
    local lease, bells = text .. since, rung[inbox]
    if bells then bells[#bells + 1] = lease else rung[inbox] = {lease} end
    for at = first[i], first[i + 1] - 1 do
      local seat = seats[at]
      held[seat], taken[o / 2 + 1], taken[o / 2 + 2] = lease, seat, lease
      ops[o + 1], ops[o + 2], ops[o + 3], ops[o + 4] = 'SET', 'u1', bits[at], '0'
      o = o + 4
    end
  end
end
if o > 0 then
  damaged = ring_all(rung)
  if damaged then return damaged end
  write_all('HSET', slots, taken)
  write_ledgers(left, ledgers)
  write_bits_at(free, ops)
  version = (version or 0) + 1
  redis.call('HSET', meta, 'version', version, 'free', (total or 0) - o / 4)
end
reply[1] = tonumber(version or 0)
return reply
