-- set_reason: write why tasks of these kinds have found no place yet, for people to read.
-- KEYS: kinds
-- ARGV: count (kind why)*
-- RETURNS: of how many of the kinds tasks wait
-- ERRORS: PSARGS
-- INVARIANT: only the reasons in lines of kinds change, which makes no new version: schedulers know why.
-- ATOMICITY: whole.
-- COMPLEXITY: O(count)
--- @include call/batch
--- @include kind/line
local names, written = {}, {}
for i, row in rows() do names[i] = row.kind end
local lines = read_fields(kinds, names)
for _, row in rows() do
  local waiting, first, last = parse_kind(lines[row.kind])
  if waiting then
    local why = row.why == '' and '' or ' ' .. row.why
    written[#written + 1], written[#written + 2] = row.kind, string.format('%d %d %d%s', waiting, first, last, why)
  end
end
redis.call('HDEL', kinds, '') -- changes nothing; a full server allows a script that begins so, docs/decisions/0015
write_all('HSET', kinds, written)
return #written / 2
