-- Write the ledgers that a call has changed.
--- @include node/ledger

-- look_at_changed: raise an error before the first write if the key `changed` has another type.
local function look_at_changed(changed)
  if next(CHANGED) then
    redis.call('ZCARD', changed)
  end
end

-- write_ledgers: write each changed ledger, and the version of the partition at which it changed.
local function write_ledgers(left_key, changed, version)
  local lines = {}
  local empty = {}
  local versions = {}
  for name, ledger in pairs(CHANGED) do
    local text = ledger_text(ledger)
    versions[#versions + 1] = version
    versions[#versions + 1] = name
    if text == '' then
      empty[#empty + 1] = name
    else
      lines[#lines + 1] = name
      lines[#lines + 1] = text
    end
  end
  write_all('HSET', left_key, lines)
  write_all('HDEL', left_key, empty)
  write_all('ZADD', changed, versions)
end
