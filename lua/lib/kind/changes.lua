-- The copy of `kinds` that a scheduler has stands at a version: 'V', or 'V/B' if it is not whole yet, because it was begun
-- anew when the queue was at version B.
--- @include kind/index

-- bad_since: return the error reply for a text that is no version of a copy, or nil.
local function bad_since(since)
  if #since < 32 and (string.find(since, '^%d+$') or string.find(since, '^%d+/%d+$')) then return nil end
  return redis.error_reply('PSARGS since is V or V/B')
end

-- changes_since: return the changes that a copy lacks, `most` at most: the version at which the copy then stands, 1 if it must be
-- dropped first, 1 if there are more changes, and {kind, line or '', ...}.
local function changes_since(kinds, changed, since, most)
  local now, at, begun = COUNTED.now, string.match(since, '^(%d+)%f[%D]/?(%d*)$')
  at, begun = tonumber(at), tonumber(begun) or tonumber(at)
  local anew, changes, last = at == 0 or at > now or begun < COUNTED.floor, {}, now
  if anew then at, begun = 0, now end
  if at == COUNTED.version and #TOUCHED <= tonumber(most) then -- only this call has changed something since
    for _, kind in ipairs(TOUCHED) do
      changes[#changes + 1], changes[#changes + 2] = kind, QUEUES[kind].line or ''
    end
  elseif at < now then
    local after = string.format('(%d', at)
    local names = redis.call('ZRANGEBYSCORE', changed, after, '+inf', 'LIMIT', 0, most)
    local lines = read_fields(kinds, names)
    for _, kind in ipairs(names) do changes[#changes + 1], changes[#changes + 2] = kind, lines[kind] or '' end
    if #names >= tonumber(most) then last = tonumber(redis.call('ZSCORE', changed, names[#names])) end
  end
  local version = begun > last and string.format('%d/%d', last, begun) or string.format('%d', last)
  return version, anew and 1 or 0, last < now and 1 or 0, changes
end
