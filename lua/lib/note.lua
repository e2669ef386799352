-- The note of a node beside its record: who drains it says so in both (set_node.lua).

-- drain_of: what a note says of a node's drain.
local function drain_of(note)
  return string.find(note, '^drain over ') and '2' or string.find(note, '^drain ') and '1' or '0'
end

-- note_of: a node's note as it must be: the one that it has, if that will do.
local function note_of(node, note)
  local text = string.match(note, '^drain over (.*)$') or string.match(note, '^drain (.*)$') or 'no deadline'
  if node.drain ~= '0' then return (node.drain == '2' and 'drain over ' or 'drain ') .. text end
  if string.find(note, '^suspect ') then return note end
  return node.state == 'suspect' and 'suspect what it was suspected of is lost' or ''
end
