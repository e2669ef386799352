-- set_policy: replace the ceilings of this shard, and wake a scheduler.
-- KEYS: meta kinds changed
-- ALSO: accounts policy holders:
-- ARGV: count channel (account text)*
--   account: an account, or a pattern; text: its ceiling, see lib/kind/ceilings.lua; behind it
--     ' declared=1' if an app declares it, and ' shards=N' if the queue has several shards
--     '' for a declared ceiling that goes
-- RETURNS: how many ceilings are new, changed or gone
-- ERRORS: PSARGS
-- INVARIANT: tasks that count to an account go on when its ceiling falls below what they hold; the
--   account has room again when enough of them have ended. Allotments stay as they are. A
--   declared ceiling that no row names stays, unless a row that is not declared covers the limit.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(ceilings + accounts)
--- @include kind/policy
--- @include cluster/wake

-- read_rows: return an error reply or nil, and {account -> ceiling} of the rows.
local function read_rows()
  local refusal
  local ceilings = {}
  for _, row in rows() do
    if not string.find(row.account, '^[@%w][%w_.:@+/*-]*$') then
      refusal = redis.error_reply('PSARGS an account is letters, digits and _.:@+/-')
    elseif row.text ~= '' and not string.find(row.text, '^%l[%l%d_.]*=%d[%l%d_.=/ ]*$') then
      refusal = redis.error_reply('PSARGS a ceiling is words NAME=N')
    end
    ceilings[row.account] = row.text
  end
  return refusal, ceilings
end

local refusal, ceilings = read_rows()
refusal = refusal or bad_counts(meta)
if refusal then
  return refusal
end
local changes = replace_ceilings(ceilings)
if #changes > 0 then
  let_try(changes)
  write_changes(meta, kinds, changed)
  wake(args.channel, meta)
end
return #changes
