-- The copy of `kinds` that a scheduler has stands at a version: 'V', or 'V/B' if it is not whole yet, because it was begun
-- anew when the queue was at version B. Needs lib/batch.lua.
--- @include batch

-- bad_since: return the error reply for what is no version of a copy, or nil.
local function bad_since(since)
  if #since < 31 and (string.find(since, '^%d+$') or string.find(since, '^%d+/%d+$')) then return nil end
  return redis.error_reply('PSARGS since is V or V/B')
end

-- changes_since: return what makes a copy the present one, `most` changes at most: the version that it stands at then, 1 if it
-- is to be dropped first, 1 if there are more changes, and {kind, line or '', ...}.
local function changes_since(meta, kinds, changed, since, most)
  local found = redis.call('HMGET', meta, 'version', 'floor')
  local now, floor, at, begun = tonumber(found[1] or 0), tonumber(found[2] or 0), string.match(since, '^(%d+)/?(%d*)$')
  at, begun = tonumber(at), tonumber(begun) or tonumber(at)
  local anew = at == 0 or at > now or begun < floor
  if anew then at, begun = 0, now end
  if at == now then return found[1] or '0', anew and 1 or 0, 0, {} end
  local after = '(' .. string.format('%.0f', at)
  local page = redis.call('ZRANGEBYSCORE', changed, after, now, 'WITHSCORES', 'LIMIT', 0, most)
  local names, changes = {}, {}
  for i = 1, #page, 2 do names[#names + 1] = page[i] end
  local lines = read_fields(kinds, names)
  for _, kind in ipairs(names) do changes[#changes + 1], changes[#changes + 2] = kind, lines[kind] or '' end
  local last = page[#page]
  if #names < tonumber(most) or tonumber(last) == now then return found[1], anew and 1 or 0, 0, changes end
  return begun > tonumber(last) and last .. '/' .. string.format('%.0f', begun) or last, anew and 1 or 0, 1, changes
end
