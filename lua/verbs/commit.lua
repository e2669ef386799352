-- commit: judge each claim by itself: are its slots free and its amounts left, and are the nodes as
-- its scheduler saw them?
-- KEYS: meta slots free left changed inbox*
-- READS: meta slots free left changed inbox
-- ARGV: count epoch (text seats bits inbox)*
--   epoch: that of the scheduler's copy of the partition
--   text: the place without its last word, ' since=MS'
--   seats: 'n1/3' or 'n1/3 n1/4'; bits: '17' or '17 18', the positions of these slots in `free`
--   inbox: which of the keys inbox*, from 1
-- RETURNS: {version, now_ms, (row, word, detail)*} of the rows that are not held since now_ms:
--   yours (the claim was won before), detail since when
--   changed (the nodes are others now), detail the present epoch
--   conflict, detail the task that has the slot, '' if the slot is not usable
--   short, detail the amounts left
--   A claim that got devices has the word held or yours, and detail is since when, and the amounts
--   that the claim holds: '1732161994123 gpu@1=0.5'
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: a free bit is 1 exactly when the slot is usable and has no lease; what is left and
--   what leases hold add up to what the node declared; the first claim wins.
-- ATOMICITY: a claim takes all of its slots and amounts and rings its doorbell, or does nothing.
-- COMPLEXITY: O(slots claimed)
--- @include call/batch
--- @include call/bitmap
--- @include place/claims
--- @include call/clock
--- @include call/hash_numbers
--- @include place/doorbell
--- @include node/ledger
local LEASE_OF = {} -- slot -> its lease, of the claims that this call lets win
local LEASES = {} -- {slot, lease, ...}: the content of LEASE_OF, for HSET
local BITS = {} -- operations of BITFIELD that set the free bits of won slots to 0
local DOORBELLS = {} -- number of an inbox -> the leases that ring there

local seats, bits, first, names -- the slots of all claims; see read_claims
local leases, open -- the leases and the free bits of the claimed slots, as they are now
local ledgers -- node -> its ledger, of the claims that ask for amounts
local epoch, version, free_count -- the numbers in meta of the partition

-- read_partition: read the claims and what they are judged by. Return the error reply, or nil.
local function read_partition()
  local refusal
  refusal, seats, bits, first, names = read_claims()
  if refusal then
    return refusal
  end
  refusal, epoch, version, free_count = read_counts(meta, 'epoch', 'version', 'free')
  if refusal then
    return refusal
  end
  leases = read_list(slots, seats)
  ledgers = read_ledgers(left, names, count)
  open = read_bits(free, bits)
end

-- held_before: return since when a claim has these slots already, and behind a space the amounts
-- that the claim holds if it got devices; nil if it does not have the slots.
local function held_before(i, text)
  local lease = leases[first[i]] or LEASE_OF[seats[first[i]]]
  if not lease then
    return nil
  end
  local is_same = string.sub(lease, 1, #text) == text
  local since = is_same and string.match(lease, '^ since=(%d+)$', #text + 1)
  if names[i] and not since then
    since = in_full().held_since(lease, text)
  end
  return since
end

-- judge_claim: return nil for a claim that wins, and then the text of its amounts if the claim got
-- devices. Return the word and the detail of the reply for a claim that loses.
local function judge_claim(i, text)
  local since = held_before(i, text)
  if since then
    return 'yours', since
  end
  if epoch ~= args.epoch then
    return 'changed', epoch or '0'
  end
  for n = first[i], first[i + 1] - 1 do
    local lease = leases[n] or LEASE_OF[seats[n]]
    if lease or open[n] == 0 then
      return 'conflict', string.match(lease or '', '^%S*')
    end
  end
  if not names[i] then
    return nil
  end
  local lacking, amounts_held = spend(ledgers, names[i], text)
  if lacking then
    return 'short', lacking
  end
  return nil, amounts_held
end

-- hold_slots: note that a claim has won its slots, by this lease, and ring the doorbell.
local function hold_slots(i, lease, inbox)
  local doorbells = DOORBELLS[inbox] or {}
  doorbells[#doorbells + 1] = lease
  DOORBELLS[inbox] = doorbells
  local size = #LEASES
  local operations = #BITS
  for n = first[i], first[i + 1] - 1 do
    local seat = seats[n]
    LEASE_OF[seat] = lease
    LEASES[size + 1] = seat
    LEASES[size + 2] = lease
    size = size + 2
    BITS[operations + 1] = 'SET'
    BITS[operations + 2] = 'u1'
    BITS[operations + 3] = bits[n]
    BITS[operations + 4] = '0'
    operations = operations + 4
  end
end

-- judge_claims: judge all claims, and let each claim that wins hold its slots. Return the reply.
local function judge_claims()
  local now = now_ms()
  local reply = {0, now}
  for i, row in rows() do
    local word, detail = judge_claim(i, row.text)
    if not word then
      local text = detail and in_full().held_text(row.text, detail) or row.text
      hold_slots(i, text .. ' since=' .. now, row.inbox)
    end
    if detail then
      reply[#reply + 1] = i
      reply[#reply + 1] = word or 'held'
      reply[#reply + 1] = word and detail or now .. ' ' .. detail
    end
  end
  return reply
end

-- write_claims: write the claims that have won. Return the error reply for a bad doorbell, or nil.
local function write_claims()
  version = (version or 0) + 1
  look_at_changed(changed)
  local refusal = ring_all(DOORBELLS)
  if refusal then
    return refusal
  end
  write_all('HSET', slots, LEASES)
  write_ledgers(left, changed, version)
  write_bits_at(free, BITS)
  redis.call('HSET', meta, 'version', version, 'free', (free_count or 0) - #BITS / 4)
end

local refusal = read_partition()
if refusal then
  return refusal
end
local reply = judge_claims()
if #BITS > 0 then
  refusal = write_claims()
end
reply[1] = tonumber(version or 0)
return refusal or reply
