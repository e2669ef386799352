-- Read the rows of commit into lists.

-- add_words: append the words of a text to a list. Stops behind entry `limit`, which no sound call
-- has.
local function add_words(list, text, limit)
  if not string.find(text, ' ', 1, true) then -- as most texts
    list[#list + 1] = text
    return
  end
  for word in string.gmatch(text, '%S+') do
    list[#list + 1] = word
    if #list > limit then
      break
    end
  end
end

-- read_claims: return nil, the seats and the bits of all claims, {row -> the first of its seats}
-- with the end of the last row, and {row -> node} of the claims that ask for amounts; or the error
-- reply for a claim that is not well formed.
local function read_claims()
  local find = string.find
  local seats = {}
  local bits = {}
  local first_seats = {}
  local nodes = {}
  local size = 0
  for i, row in rows() do
    local seat = row.seats
    local text = row.text
    first_seats[i] = size + 1
    if find(seat, ' ', 1, true) then
      add_words(bits, row.bits, size + 10000)
      add_words(seats, seat, #bits)
      size = #seats
    else
      size = size + 1
      seats[size] = seat
      bits[size] = row.bits
    end
    if bits[size + 1] or not bits[size] or not inbox_at(row.inbox) then
      local refusal = 'PSARGS commit: a claim names no inbox, or not one bit for each slot'
      return redis.error_reply(refusal)
    end
    local equal = find(text, '=', 1, true) -- that of inc; amounts have more
    if equal and find(text, '=', equal + 1, true) then
      nodes[i] = string.match(seat, '^([^ /]*)/')
    end
  end
  first_seats[count + 1] = size + 1
  return nil, seats, bits, first_seats, nodes
end

-- held_text: return the text of a claim with the amounts that the claim holds in the place of those
-- that it asks for.
local function held_text(text, held_amounts)
  return string.match(text, '^.- inc=%d+%f[%D]') .. ' ' .. held_amounts
end

-- held_since: return since when a lease with devices is the lease of a claim, and the amounts of
-- the lease; nil for the lease of another claim.
local function held_since(lease, text)
  local head = (string.match(text, '^.- inc=%d+%f[%D]') or '') .. ' '
  if string.sub(lease, 1, #head) ~= head then
    return nil
  end
  local held_amounts, since = string.match(lease, '^(.*) since=(%d+)$', #head + 1)
  if not held_amounts or not string.find(held_amounts, '@', 1, true) then
    return nil
  end
  return since .. ' ' .. held_amounts
end
