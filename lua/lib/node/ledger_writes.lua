-- Write the ledgers that a call has changed.
--- @include node/ledger

-- look_at_changed: raise an error before the first write if the key of what changed when has another type.
local function look_at_changed(changed)
  if next(CHANGED) then redis.call('ZCARD', changed) end
end

-- write_ledgers: write the ledgers that have changed, and at which version of the partition.
local function write_ledgers(left, changed, version)
  local lines, empty, versions = {}, {}, {}
  for name, ledger in pairs(CHANGED) do
    versions[#versions + 1], versions[#versions + 2] = version, name
    local text = ledger_text(ledger)
    if text == '' then empty[#empty + 1] = name else lines[#lines + 1], lines[#lines + 2] = name, text end
  end
  write_all('HSET', left, lines)
  write_all('HDEL', left, empty)
  write_all('ZADD', changed, versions)
end
