-- Check the sorted set `changed` of a partition: node -> the version at which its amounts changed
-- last, and '' -> the first version for which the set is complete. A scheduler whose copy has an
-- earlier version reads the whole partition again.

-- judge_changed: report each entry that no script writes, and a missing entry ''.
-- latest: the version of the partition; has_nodes: whether the partition has nodes.
local function judge_changed(changed, latest, has_nodes, is_node, report)
  local entries = redis.call('ZRANGE', changed, 0, -1, 'WITHSCORES')
  local is_dated = not has_nodes
  for i = 1, #entries, 2 do
    local name = entries[i]
    local version = tonumber(entries[i + 1])
    is_dated = is_dated or name == ''
    if name ~= '' and not is_node(name) or version < 0 or version > latest or version % 1 ~= 0 then
      local why = name == '' and 'it begins at a version that there was not: ' or ''
      report(changed, name, why .. entries[i + 1])
    end
  end
  if not is_dated then
    report(changed, '', 'it does not say from which version on it is complete')
  end
end
