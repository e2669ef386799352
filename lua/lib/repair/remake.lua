-- Make anew what a damaged task has lost, from what is left of it.
--- @include kind/index
--- @include place/lease
--- @include repair/recount
--- @include task/order
--- @include task/transitions

-- place_of: return the text of the place in the text of a run.
local function place_of(run)
  return run_parts(run) or run
end

-- has_attempt_of: return whether the text of a run has the attempt that the line tells.
local function has_attempt_of(run, line)
  local takes, life = string.match(run, '^%S+ (%d+)@(%d+)%.%S+%.%w+ ')
  return takes and #takes < 10 and tonumber(takes) == line.takes + 1 and life == line.life
end

-- adopt_attempt: write the attempt of a run into a line.
local function adopt_attempt(run, line)
  local takes, life = string.match(run, '^%S+ (%d+)@(%d+)')
  if takes and #takes < 10 and #life < 16 then
    line.takes = takes - 1
    line.life = life
  end
end

-- name_in: return the name of a task from the headers of its message; nil if the headers have none.
local function name_in(message)
  return string.match(message, '"task": ?"([^"\\%s]+)"')
end

-- name_of: return the name in a word NAME=AMOUNT.
local function name_of(word)
  return string.match(word, '^[^=]*')
end

-- needs_text: return the amounts of a place as its task asked for them, without single devices:
-- 'gpu@0=1 gpu@1=1' is 'gpu=2'.
local function needs_text(asked)
  local words = {}
  local whole_devices = {} -- kind of devices -> number of them
  local listed = {}
  for name, amount in string.gmatch(asked, '%f[!-~]([^ =]+)=([%d.]+)') do
    local bare, sign = string.match(name, '^([^@]*)(@?)')
    if sign ~= '' and amount == '1' and not string.find(bare, '.', 1, true) then
      whole_devices[bare] = (whole_devices[bare] or 0) + 1
    elseif not listed[bare] then
      listed[bare] = true
      words[#words + 1] = bare .. '=' .. amount
    end
  end
  for kind, count in pairs(whole_devices) do
    words[#words + 1] = string.format('%s=%d', kind, count)
  end
  table.sort(words, function(a, b)
    return name_of(a) < name_of(b)
  end)
  return #words > 0 and ' ' .. table.concat(words, ' ') or ''
end

-- units_of: return how many units of a limit a task holds whose line is lost: those that the other
-- holders do not hold, 1 if that is not known.
local function units_of(name, id)
  read_accounts({name})
  check_holders(name)
  local account = account_of(name)
  local summary = {count = 0, held = {}}
  local other_ids = {}
  for _, holder in ipairs(redis.pcall('ZRANGE', KEY.holders .. name, 0, 999)) do
    other_ids[#other_ids + 1] = holder ~= id and holder or nil
  end
  local are_all = account.count == #other_ids + 1 and judge_holders(name, summary, other_ids)
  local units = are_all and (account.held.units or 0) - (summary.held.units or 0) or 1
  return math.max(1, units)
end

-- accounts_text: return the words of a kind about the accounts that have a task among their
-- holders, also if the line of the account is damaged: ' prefer=warm=KEY for=TENANT under=LIMITS';
-- '' for none.
local function accounts_text(id)
  local lines = redis.pcall('HGETALL', KEY.accounts)
  local tenant = ''
  local key = ''
  local limits = {}
  for i = 1, #lines, 2 do
    local name = lines[i]
    local mark = string.byte(name)
    if is_listed(id, name) then
      if mark == 126 then -- '~'
        key = name
      elseif mark ~= 64 then -- '@'
        limits[#limits + 1] = name
      elseif #name > #tenant then
        tenant = name
      end
    end
  end
  table.sort(limits)
  for i, name in ipairs(limits) do
    local units = units_of(name, id)
    limits[i] = units > 1 and string.format('%s*%d', name, units) or name
  end
  return (key ~= '' and ' prefer=warm=' .. string.sub(key, 2) or '')
    .. (tenant ~= '' and ' for=' .. string.sub(tenant, 2) or '')
    .. (#limits > 0 and ' under=' .. table.concat(limits, ',') or '')
end

-- take_kind_of_run: write the kind and the attempt of a task into its line, as its run tells them;
-- the message tells the name, and the holders of accounts tell the accounts. The order becomes that
-- of a task that is submitted now.
local function take_kind_of_run(line, id, run, lease)
  local name = name_in(redis.call('HGET', KEY.messages, id) or '')
  local _, slots = string.gsub(lease.slots, '%d+', '')
  line.kind = name
    and name .. ' slots=' .. slots .. needs_text(lease.asked) .. accounts_text(id)
  adopt_attempt(run, line)
  begin_versions()
  LAST_VERSION = LAST_VERSION + 1
  line.order = string.format('%d', base_of(0) + LAST_VERSION)
end

-- remake_line: return a new line of a task that has lost its line; nil if nothing tells the kind.
-- A place in the queue of a kind tells kind and order; the life becomes that of the last
-- submission. Else the run tells slots, amounts and life, the message the name, and the accounts
-- that they have the task among their holders. Options and labels are lost.
local function remake_line(id, kind, order, run, now)
  local line = {
    mark = redis.call('EXISTS', KEY.extra .. id) == 1 and '+' or '',
    takes = 0,
    ready = now,
    submitted = now,
    options = '-',
    order = order and string.format('%d', order),
    kind = kind,
    life = order and string.format('%d', math.max(1, COUNTED.submitted)),
  }
  local lease = not order and run and parse_lease(place_of(run))
  if lease then
    take_kind_of_run(line, id, run, lease)
  end
  return line.kind and line.life and parse_line(line_text(line)) or nil
end
