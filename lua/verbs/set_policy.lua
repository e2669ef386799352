-- set_policy: replace the ceilings of this shard, or remove declared ones; wake a scheduler.
-- KEYS: meta kinds changed
-- ALSO: accounts policy holders: names
-- READS: names
-- ARGV: count channel how (account text)*
--   how: 'replace' all ceilings; 'remove' the declared ceilings of these accounts
--   account: an account, or a pattern; text: its ceiling, see lib/kind/ceilings.lua; behind it
--     ' declared=1' if an app declares it, and ' shards=N' if the queue has several shards
--     '' if the ceiling is to be removed
-- RETURNS: how many ceilings are new, changed or gone
-- ERRORS: PSARGS
-- INVARIANT: tasks that count to an account go on when its ceiling falls below what they hold; the
--   account has room again when enough of them have ended. Allotments stay as they are. A
--   declared ceiling that no row names stays, unless a row that is not declared covers the limit.
--   A declared ceiling is removed only if no text in `names` declares the limit, and no task of the
--   shard holds the limit or waits under it.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(ceilings + accounts); a removal also O(kinds + limits in `names`)
--- @include kind/undeclared
--- @include cluster/wake

-- read_rows: return an error reply or nil, and {account -> ceiling} of the rows.
local function read_rows()
  local refusal
  local ceilings = {}
  for _, row in rows() do
    if not string.find(row.account, '^[@%w][%w_.:@+/*-]*$') then
      refusal = redis.error_reply('PSARGS an account is letters, digits and _.:@+/-')
    elseif args.how == 'replace' and not string.find(row.text, '^%l[%l%d_.]*=%d[%l%d_.=/ ]*$') then
      refusal = redis.error_reply('PSARGS a ceiling is words NAME=N')
    end
    ceilings[row.account] = row.text
  end
  return refusal, ceilings
end

local refusal, ceilings = read_rows()
if args.how ~= 'replace' and args.how ~= 'remove' then
  refusal = redis.error_reply('PSARGS how is replace or remove')
end
refusal = refusal or bad_counts(meta)
if refusal then
  return refusal
end
local changes = args.how == 'remove' and remove_declared(kinds, ceilings)
  or replace_ceilings(ceilings)
if #changes > 0 then
  let_try(changes)
  write_changes(meta, kinds, changed)
  wake(args.channel, meta)
end
return #changes
