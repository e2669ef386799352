-- Check leases against each other: all the slots that a lease names have this lease. If one has not, all of them are freed: a
-- worker's login may repair, but not lease.
--- @include kind/fits
--- @include place/leases_of_node

-- judge_seats: report each corrupt lease; set need[name] to the slots that the leases of a node without a record need.
local function judge_seats(each, slots, tell, found, need)
  local texts, held = {}, {} -- texts: name of a node -> slot, as text -> lease
  each(slots, function(seat, text)
    local name, slot = string.match(seat, '^(%w[%w_.@-]*)/(%d%d?%d?%d?)$')
    local node = name and found[name] or {span = 10000, inc = '0'} -- inc 0: not registered since its repair
    local lease = name and tonumber(slot) < node.span and parse_lease(text)
    if lease and names_seat(lease, slots, name, slot) and (node.inc == '0' or tonumber(lease.inc) <= tonumber(node.inc)) then
      texts[name] = texts[name] or {}
      texts[name][slot], held[seat] = text, {name = name, slot = slot, lease = lease, text = text}
    else
      tell(slots, seat, text)
    end
  end)
  for seat, at in pairs(held) do
    if not agrees(texts[at.name], at.lease, at.text) then
      tell(slots, seat, at.text)
    elseif not found[at.name] then
      need[at.name] = math.max(need[at.name] or 1, at.slot + 1)
    end
  end
end
