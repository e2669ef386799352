-- allot: write the allotments of accounts in this shard, unless somebody else has done so since the
-- seal; and tell what accounts may hold and hold.
-- KEYS: meta kinds changed
-- ALSO: accounts policy holders:
-- ARGV: count channel seal salt (account text next)*
--   seal: the seal that the caller knows; '' to seal the shard for the caller, whatever its seal is
--   salt: the end of the next seal, which no other caller has
--   text: the allotment, '' for none; next: for an allotment that is raised: until when (ms) the
--     rate of the account is used up in any shard, or '0'; '' for one that is not raised
-- RETURNS: {seal, now_ms, (account, ceiling, allotment, line)*}, of the accounts of the rows; of
--   all accounts with an allotment if there are no rows. {''} if the shard has another seal
--   ceiling: undivided; line: as it is stored, or 'damaged'
-- ERRORS: PSARGS PSRECORD
-- INVARIANT: an allotment changes only by a call that knows the seal. The seal changes with each
--   call that has rows or seals. So a call that comes late or twice, or from an earlier leader,
--   changes nothing. What an account holds grows only by takes, up to its allotment.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(rows), or O(accounts with an allotment)
--- @include kind/changing
--- @include cluster/wake
local NAMES = {} -- the accounts of the rows, or all with an allotment
local HAS_RAISED = false -- whether the call raises an allotment

-- bad_rows: return an error reply if the rows are malformed, or nil.
local function bad_rows()
  local refusal
  for _, row in rows() do
    if not string.find(row.account, '^[@%w][%w_.:@+/-]*$') then
      refusal = redis.error_reply('PSARGS an account is letters, digits and _.:@+/-')
    elseif not string.find(row.text, '^[%l%d_.= ]*$') then
      refusal = redis.error_reply('PSARGS an allotment is words NAME=N')
    elseif not string.find(row.next, '^[%d.]*$') then
      refusal = redis.error_reply('PSARGS next is a time in ms')
    end
    NAMES[#NAMES + 1] = row.account
  end
  return refusal
end

-- write_rows: write the allotments of the rows. An account that may hold more is tried again.
local function write_rows()
  for _, row in rows() do
    write_allotment(row.account, row.text)
  end
  read_ceilings(NAMES)
  for _, row in rows() do
    local account = touch_account(row.account)
    if row.next ~= '' then
      HAS_RAISED = true
      account.full = false
      if account.interval then
        account.next = math.max(account.next or 0, tonumber(row.next) or 0)
      end
    end
  end
end

-- line_of: return the line of an account; 'damaged' if its line and its holders contradict.
local function line_of(name)
  check_holders(name)
  local account = account_of(name)
  if not account.count then
    return 'damaged'
  end
  return account_text(account) .. (account.full and ' full' or '')
end

-- tell_allotments: return {seal, now_ms, (account, ceiling, allotment, line)*} of NAMES.
local function tell_allotments(seal)
  read_ceilings(NAMES)
  local reply = {seal, now_ms()}
  for _, name in ipairs(NAMES) do
    local account = account_of(name)
    reply[#reply + 1] = name
    reply[#reply + 1] = account.whole_text or account.ceiling_text
    reply[#reply + 1] = account.allotment or ''
    reply[#reply + 1] = line_of(name)
  end
  return reply
end

local refusal = bad_counts(meta) or bad_rows() or bad_allotments()
if refusal then
  return refusal
end
local seal = read_seal()
if args.seal ~= '' and args.seal ~= seal then
  return {''}
end
if #NAMES > 0 or args.seal == '' then
  seal = write_seal(seal, args.salt)
  write_rows()
end
if #NAMES == 0 then
  NAMES = allotted_accounts()
end
local reply = tell_allotments(seal)
write_changes(meta, kinds, changed)
if HAS_RAISED then
  wake(args.channel, meta)
end
return reply
