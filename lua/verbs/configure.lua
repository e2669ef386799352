-- configure: write the settings that the whole cluster shares, if the cluster has none yet.
-- Replaces other settings if the caller asks for that.
-- KEYS: config
-- ARGV: over (name value)*
--   over: '1' replaces other values: the caller is a scheduler that has used its settings until
--     now, so other values are damage
-- RETURNS: (name, value)* of the settings that hold now
-- ERRORS: PSARGS
-- INVARIANT: a written setting does not change, except by damage.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(settings)
--- @include call/batch
local is_to_write = redis.call('EXISTS', config) == 0
if args.over == '1' then
  for _, row in rows() do
    is_to_write = is_to_write or redis.call('HGET', config, row.name) ~= row.value
  end
end
if is_to_write then
  local settings = {}
  for _, row in rows() do
    settings[#settings + 1] = row.name
    settings[#settings + 1] = row.value
  end
  write_all('HSET', config, settings)
end
return redis.call('HGETALL', config)
