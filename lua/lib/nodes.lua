-- Many nodes of a partition at once.
--- @include batch
--- @include node

-- read_nodes: {name -> node} of those that are there and can be read.
local function read_nodes(nodes, names)
  local found = {}
  for name, text in pairs(read_fields(nodes, names)) do found[name] = parse_node(name, text) end
  return found
end
