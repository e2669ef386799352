-- Tell a scheduler which lines of `kinds` changed since the version of its copy. The version is the
-- text 'V', or 'V/B' for a copy that is not whole yet: the scheduler began the copy anew when the
-- queue was at version B, and has read the changes up to V.
--- @include kind/changing

-- bad_since: return the error reply for a text that is no version of a copy, or nil.
local function bad_since(since)
  if #since < 32 and (string.find(since, '^%d+$') or string.find(since, '^%d+/%d+$')) then
    return nil
  end
  return redis.error_reply('PSARGS since is V or V/B')
end

-- own_changes: return {kind, line or '', ...} of the kinds that this call has changed. A take tells
-- of accounts by itself.
local function own_changes()
  local changes = {}
  for _, kind in ipairs(TOUCHED) do
    if QUEUES[kind] then
      changes[#changes + 1] = kind
      changes[#changes + 1] = QUEUES[kind].line or ''
    end
  end
  return changes
end

-- read_changes: return {kind, line or '', ...} of kinds and accounts that changed after a version,
-- the earliest change first, and the version that a copy reaches with these changes.
local function read_changes(kinds, changed, version, limit)
  local after = string.format('(%d', version)
  local names = redis.call('ZRANGEBYSCORE', changed, after, '+inf', 'LIMIT', 0, limit)
  local lines = read_fields(kinds, names)
  local changes = {}
  local places -- of the names that begin with '='
  for _, kind in ipairs(names) do
    changes[#changes + 1] = kind
    changes[#changes + 1] = lines[kind] or ''
    if string.byte(kind) == 61 then -- '='
      places = places or {}
      places[#places + 1] = #changes - 1
    end
  end
  if places then
    counting().put_account_lines(changes, places)
  end
  if #names >= tonumber(limit) then
    return changes, tonumber(redis.call('ZSCORE', changed, names[#names]))
  end
  return changes, COUNTED.now
end

-- changes_since: return the changes that a copy lacks, of `limit` kinds at most: the version of the
-- copy with these changes, 1 if the copy must be dropped first, 1 if there are more changes, and
-- {kind, line or '', ...}.
local function changes_since(kinds, changed, since, limit)
  local now = COUNTED.now
  local version, begun = string.match(since, '^(%d+)%f[%D]/?(%d*)$')
  version = tonumber(version)
  begun = tonumber(begun) or version
  local begins_anew = version == 0 or version > now or begun < COUNTED.floor
  if begins_anew then
    version = 0
    begun = now
  end
  local changes = {}
  local reached = now
  if version == COUNTED.version and #TOUCHED <= tonumber(limit) then
    changes = own_changes() -- since the copy's version only this call has changed a kind
  elseif version < now then
    changes, reached = read_changes(kinds, changed, version, limit)
  end
  local copy_version = string.format('%d', reached)
  if begun > reached then
    copy_version = string.format('%d/%d', reached, begun)
  end
  return copy_version, begins_anew and 1 or 0, reached < now and 1 or 0, changes
end
