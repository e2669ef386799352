-- set_reason: write why tasks of these kinds have no place yet, for people to read.
-- KEYS: kinds
-- ARGV: count (kind why)*
-- RETURNS: the number of these kinds of which tasks wait
-- ERRORS: PSARGS
-- INVARIANT: only the reasons in the lines of kinds change. The kinds get no new version:
--   schedulers know the reasons.
-- ATOMICITY: the whole call.
-- COMPLEXITY: O(count)
--- @include call/batch
--- @include kind/line
local kinds_asked = {}
local fields = {}
for i, row in rows() do
  kinds_asked[i] = row.kind
end
local lines = read_fields(kinds, kinds_asked)
for _, row in rows() do
  local waiting, first, last = parse_kind(lines[row.kind])
  if waiting then
    local why = row.why == '' and '' or ' ' .. row.why
    fields[#fields + 1] = row.kind
    fields[#fields + 1] = string.format('%d %d %d%s', waiting, first, last, why)
  end
end
-- This HDEL deletes nothing: a full server allows a script that begins with HDEL, see
-- docs/decisions/0015.
redis.call('HDEL', kinds, '')
write_all('HSET', kinds, fields)
return #fields / 2
