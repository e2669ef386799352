-- The notice of a node: it leaves at a time. `until=1795806395734` of its record has the time (ms).
-- The word `own` behind it says that the node's process has the notice: the next incarnation does
-- not have it. The word `over` says that the time has come: the node takes no claims, and its
-- agent ends its runs.

-- is_notice: return whether a text is a notice.
local function is_notice(text)
  local time, words = string.match(text, '^(%d+)(.*)$')
  local are_known = {[''] = 1, [',own'] = 1, [',over'] = 1, [',own,over'] = 1}
  return time and #time < 16 and are_known[words] ~= nil
end

-- is_own: return whether a node's process has its notice.
local function is_own(node)
  return string.find(node.notice or '', ',own', 1, true) ~= nil
end

-- is_over: return whether the time of a node's notice has come.
local function is_over(node)
  return string.find(node.notice or '', ',over', 1, true) ~= nil
end

-- set_notice: give a node the notice that the note of a call has, in ms, or withdraw its notice
-- for 0. A process withdraws only what it told itself. Returns nil, or the error reply.
local function set_notice(node, note, inc)
  if #note > 15 or not string.find(note, '^%d+$') then
    return redis.error_reply(
      'PSARGS the note of until is the time in ms at which the node leaves, or 0, not ' .. note)
  end
  local is_of_process = inc ~= ''
  if note + 0 == 0 then
    if is_own(node) or not is_of_process then
      node.notice = nil
    end
  elseif string.match(node.notice or '', '^%d+') ~= note then
    node.notice = note .. (is_of_process and ',own' or '')
  end
end
