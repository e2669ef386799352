-- Check leases against each other: the slots that a lead names have leases that name it, and no others do. If one does not,
-- all are freed: a worker's login may repair, but not lease. Needs lib/lease.lua and lib/fits.lua.
--- @include fits
--- @include lease

-- judge_seats: report each corrupt lease; set need[name] to the slots that the leases of a node without a record need.
local function judge_seats(each, slots, tell, found, need)
  local seats, led = {}, {}
  each(slots, function(seat, text)
    local name, slot = string.match(seat, '^(%w[%w_.@-]*)/(%d%d?%d?%d?)$')
    local node = name and found[name] or {span = 10000, inc = '0'} -- inc 0: not registered since its repair
    local lease = name and string.format('%d', slot) == slot and tonumber(slot) < node.span and parse_lease(text)
    if lease and #lease.inc < 16 and #lease.since < 16 and (node.inc == '0' or tonumber(lease.inc) <= tonumber(node.inc)) then
      local whose = table.concat({lease.lead or slot, lease.task, lease.attempt, lease.inc}, ' ')
      seats[seat] = {name = name, slot = slot, slots = lease.slots, asked = lease.asked, whose = whose, text = text}
    else
      tell(slots, seat, text)
    end
  end)
  for _, lead in pairs(seats) do
    local mine, ok = {}, lead.slots and string.match(lead.slots, '^%d+') == lead.slot and well_formed(lead.asked)
    for number in string.gmatch(lead.slots or '', '%d+') do
      local seat = lead.name .. '/' .. number
      ok = ok and seats[seat] and seats[seat].whose == lead.whose and not mine[seat]
      mine[seat] = number
    end
    for seat in pairs(ok and mine or {}) do led[seat] = true end
  end
  for seat, held in pairs(seats) do
    if not led[seat] then
      tell(slots, seat, held.text)
    elseif not found[held.name] then
      need[held.name] = math.max(need[held.name] or 1, held.slot + 1)
    end
  end
end
