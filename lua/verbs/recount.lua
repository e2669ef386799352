-- recount: make the holders and the lines of accounts anew from the tasks, if they are wrong.
-- KEYS: meta kinds changed tasks taken running
-- ALSO: accounts policy holders:
-- ARGV: count channel how account*
--   how: 'look' only judges; 'repair'
-- RETURNS: a word per account: sound, counted (its line or its holders were wrong), or idle (it is
--   sound, nothing counts to it, and its line is gone: its rate is not used up any more)
-- ERRORS: PSARGS
-- INVARIANT: afterwards the holders of an account that was wrong are all tasks that are taken,
--   placed or running and that count to the account; the line says how many they are and what they
--   hold. If line and holders agree, a task that is no holder is found and entered by
--   `repair_task`.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(holders), of an account with more than 5,000 only the number is compared; if an
--   account is wrong, O(taken + running) once
--- @include repair/recount
--- @include cluster/wake

local refusal = bad_counts(meta)
if args.how ~= 'look' and args.how ~= 'repair' then
  refusal = redis.error_reply('PSARGS how is look or repair')
end
if refusal then
  return refusal
end
if args.how == 'repair' then
  -- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
  -- docs/decisions/0015.
  redis.call('HDEL', taken, '')
  drop_unreadable()
end
local words = {}
for i, row in rows() do
  words[i] = is_sound_account(row.account) and 'sound' or 'counted'
  if args.how == 'repair' then
    words[i] = repair_account(row.account, words[i])
  end
end
if args.how == 'repair' and write_changes(meta, kinds, changed) then
  wake(args.channel, meta)
end
return words
