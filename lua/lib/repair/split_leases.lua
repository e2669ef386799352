-- Check leases against each other: every slot that a lease names has this lease. If a slot has not,
-- all slots of the lease are freed: a worker's login may repair, but may not lease.
--- @include place/leases_of_node

-- seat_of: return the lease of a seat as {name, slot, lease, text}; nil for a text that is no lease
-- of this seat. sound: {name -> node} of the sound records.
local function seat_of(field, text, slots, sound)
  local name, slot = string.match(field, '^(%w[%w_.@-]*)/(%d%d?%d?%d?)$')
  if not name then
    return nil
  end
  -- A node without a sound record counts as incarnation 0, like a node that has not registered
  -- since its repair.
  local node = sound[name] or {span = 10000, inc = '0'} -- 10,000 slots at most
  local lease = tonumber(slot) < node.span and parse_lease(text)
  if not lease or not names_seat(lease, slots, name, slot) then
    return nil
  end
  if node.inc ~= '0' and tonumber(lease.inc) > tonumber(node.inc) then
    return nil
  end
  return {name = name, slot = slot, lease = lease, text = text}
end

-- judge_seats: report each corrupt lease. Set needed[name] to the number of slots that the leases
-- of a node without a sound record need. each_field: calls a function with each field and text of a
-- hash.
local function judge_seats(each_field, slots, report, sound, needed)
  local seats = {} -- field -> seat
  local texts = {} -- name of a node -> {slot, as text -> text of its lease}
  each_field(slots, function(field, text)
    local seat = seat_of(field, text, slots, sound)
    if seat then
      texts[seat.name] = texts[seat.name] or {}
      texts[seat.name][seat.slot] = text
      seats[field] = seat
    else
      report(slots, field, text)
    end
  end)
  for field, seat in pairs(seats) do
    if not agrees(texts[seat.name], seat.lease, seat.text) then
      report(slots, field, seat.text)
    elseif not sound[seat.name] then
      needed[seat.name] = math.max(needed[seat.name] or 1, seat.slot + 1)
    end
  end
end
