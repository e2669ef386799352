-- The options of a task that its record keeps. parsync_redis/model/options.py has the table of all options; a row of submit
-- has a word for each that is kept. Needs lib/arguments.lua.
--- @include kinds
--- @include record

-- The fields of a successor: what a task does next, under the same id, once its running attempt has ended; the options are
-- those behind the first six. Without next_ they are the fields of a record that a submission fills.
local NEXT = {'next_message', 'next_name', 'next_needs', 'next_due_ms', 'next_expires_ms', 'next_publication',
  'next_priority', 'next_strategy', 'next_max_starts'}

-- bad_option: return the error reply for an option that is out of its range, or nil; '' is not asked for.
local function bad_option(task)
  if not string.find(task.needs, '^slots=%d') or not well_formed(task.needs) then
    return redis.error_reply('PSARGS needs are words NAME=N and NAME:VALUE, slots=N first')
  end
  return bad_number('priority', task.priority, 0, 9)
    or task.max_starts ~= '' and bad_number('max_starts', task.max_starts, 1, 1000)
    or nil
end

-- add_options: append {field, value}* of the options that were asked for.
local function add_options(fields, task)
  local last = #fields
  for at = 7, #NEXT do
    local option = string.sub(NEXT[at], 6)
    if task[option] ~= '' then
      fields[last + 1], fields[last + 2] = option, task[option]
      last = last + 2
    end
  end
end

-- next_of: return the successor that a record has as {option -> text}, and change its home to the successor's; if it is
-- damaged, the record runs again as it was.
local function next_of(key, home)
  local task, values = {}, redis.call('HMGET', key, unpack(NEXT))
  for i, next_field in ipairs(NEXT) do task[string.sub(next_field, 6)] = values[i] or '' end
  task.whole = task.message ~= '' and task.name ~= '' and task.needs ~= ''
  if not task.whole then return task end
  if string.find(task.priority, '^%d$') then
    home.order = string.format('%.0f', (9 - task.priority) * 1e12 + home.order % 1e12)
  else
    task.priority = ''
  end
  home.kind = kind_text(task.name, task.needs, task.strategy)
  return task
end

-- become_next: turn a record into its successor's; return when that is due, nil for now.
local function become_next(key, task)
  redis.call('HDEL', key, unpack(NEXT))
  for _, next_field in ipairs(task.whole and NEXT or {}) do
    local field = string.sub(next_field, 6)
    if task[field] ~= '' and field ~= 'due_ms' then
      redis.call('HSET', key, field, task[field])
    elseif field ~= 'priority' and field ~= 'publication' then
      redis.call('HDEL', key, field)
    end
  end
  return string.match(task.due_ms, '^%d+$')
end
