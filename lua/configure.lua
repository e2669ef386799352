-- configure: write the settings that the whole cluster shares, if it has none yet.
-- KEYS: config
-- ARGV: (name value)*
-- RETURNS: (name, value)* as they now are
-- ERRORS: PSARGS
-- INVARIANT: a setting that is written does not change.
-- ATOMICITY: whole.
-- COMPLEXITY: O(settings)
--- @include batch
if redis.call('EXISTS', config) == 0 then
  local settings = {}
  for _, row in rows() do settings[#settings + 1], settings[#settings + 2] = row.name, row.value end
  write_all('HSET', config, settings)
end
return redis.call('HGETALL', config)
