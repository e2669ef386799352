-- The heartbeat counter of a node, a line in the `alive` hash: 'inc=3 moved=257', and once the node
-- is down 'inc=3 moved=257 since=1732161994123 down'.

-- parse_counter: return the incarnation, the count, and the time (ms) since which the node is down,
-- nil if the node is up. Return nil for any other text.
local function parse_counter(text)
  local inc, moved, suffix = string.match(text or '', '^inc=(%d+) moved=(%d+)(.*)$')
  local since = suffix and string.match(suffix, '^ since=(%d+) down$')
  if not inc or #inc > 15 or #moved > 15 or #(since or '') > 15 or (suffix ~= '' and not since) then
    return nil
  end
  return inc, moved, since
end

-- counter_text: return the line of a counter; `since` is nil for a node that is up.
local function counter_text(inc, moved, since)
  return 'inc=' .. inc .. ' moved=' .. moved .. (since and ' since=' .. since .. ' down' or '')
end
