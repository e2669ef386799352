-- configure: write the settings that the whole cluster shares, if it has none yet, or other ones.
-- KEYS: config
-- ARGV: over (name value)*
--   over: '1' replaces other values: the caller is a scheduler that has gone by these, and settings never change
-- RETURNS: (name, value)* as they now are
-- ERRORS: PSARGS
-- INVARIANT: a setting that is written does not change, except by damage.
-- ATOMICITY: whole.
-- COMPLEXITY: O(settings)
--- @include call/batch
local settings, differ = {}, redis.call('EXISTS', config) == 0
if args.over == '1' then
  for _, row in rows() do differ = differ or redis.call('HGET', config, row.name) ~= row.value end
end
if differ then
  for _, row in rows() do settings[#settings + 1], settings[#settings + 2] = row.name, row.value end
  write_all('HSET', config, settings)
end
return redis.call('HGETALL', config)
