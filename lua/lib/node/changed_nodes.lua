-- Look at what changed when: node -> the version of the partition at which its amounts changed last, and '' -> the version from
-- which on that is complete. A copy of an earlier version is read anew as a whole.

-- judge_changed: report an entry that no script writes, or that the one of '' is missing. latest: the partition's version; any:
-- whether it has nodes.
local function judge_changed(changed, latest, any, is_node, tell)
  local entries, begins = redis.call('ZRANGE', changed, 0, -1, 'WITHSCORES'), not any
  for i = 1, #entries, 2 do
    local name, at = entries[i], tonumber(entries[i + 1])
    begins = begins or name == ''
    if name ~= '' and not is_node(name) or at < 0 or at > latest or at % 1 ~= 0 then
      tell(changed, name, (name == '' and 'it begins at a version that there was not: ' or '') .. entries[i + 1])
    end
  end
  if not begins then tell(changed, '', 'it does not say from which version on it is complete') end
end
