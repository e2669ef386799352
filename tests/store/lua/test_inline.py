"""A script does the same with its functions where they are called, and the names in it still mean
the same.
"""

import pytest

from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.store.scripts.inline import inline_single_calls
from tests.kit.offenders import none_wrong

MOVED = {
    "a statement": """
local calls = {}
local function note(word)
  calls[#calls + 1] = word
end
note('a')
return calls
""",
    "results, early and last": """
local function halves(number)
  if number > 10 then
    return nil, 'too large'
  end
  return number / 2, number % 2
end
local half, left_over = halves(tonumber(ARGV[1]))
return {tostring(half), tostring(left_over)}
""",
    "no result of a function that returns early": """
local function first_word(text)
  if #text > 2 then
    return 'long'
  end
end
local word = 'before'
word = first_word(ARGV[1])
return tostring(word)
""",
    "a return without a value": """
local calls = {}
local function note(word)
  if word == '0' then
    return
  end
  calls[#calls + 1] = word
end
note(ARGV[1])
return calls
""",
    "the results of its caller": """
local function parts(text)
  for word in string.gmatch(text, '%w+') do
    if word == '12' then
      return {word}
    end
  end
end
local function both(text)
  return parts(text)
end
local function run()
  return both(ARGV[1])
end
return run()
""",
    "a condition": """
local function is_long(text)
  return #text > 1
end
if not is_long(ARGV[1]) and ARGV[1] ~= '' then
  return 'short'
end
return 'long'
""",
    "a parameter that is assigned, with its caller's name": """
local function countdown(limit)
  limit = limit - 1
  return limit
end
local limit = tonumber(ARGV[1])
local less = countdown(limit)
return {limit, less}
""",
    "a result with the name of a local of the function": """
local function sum(a, b)
  local total = a + b
  return total * 2
end
local total = sum(1, tonumber(ARGV[1]))
return total
""",
    "its own name in its argument": """
local function longer(text)
  return text .. '!'
end
local word = ARGV[1]
word = longer(word)
do
  local word = word
  word = word .. '?'
end
return word
""",
    "a table over several lines": """
local function point(x)
  if x == 0 then
    return {
      x = 0,
    }
  end
  return {
    x = x + 1,
  }
end
local place = point(tonumber(ARGV[1]))
return place.x
""",
}

MOVED_IN_PART = {
    "an argument that the body changes under its own name": """
local room = 2
local function bump()
  room = room + 1
  return room
end
local function take(room)
  bump()
  return room
end
local before = take(room)
return {before, room}
""",
}
KEPT = {
    "two calls": """
local function twice(text)
  return text .. text
end
local first = twice(ARGV[1])
local second = twice(first)
return second
""",
    "a call inside an expression": """
local function twice(text)
  return text .. text
end
local word = ARGV[1] .. twice(ARGV[1])
return word
""",
    "a return from within a loop": """
local function find(text)
  for i = 1, 3 do
    if tostring(i) == text then
      return i
    end
  end
end
local number = find(ARGV[1])
return tostring(number)
""",
    "a name that means something else at the call": """
local unit = 'ms'
local function with_unit(text)
  return text .. unit
end
local function run(unit)
  local text = with_unit(ARGV[1])
  return text .. unit
end
return run('s') .. run('m')
""",
    "a function that is handed on": """
local function is_less(a, b)
  return a < b
end
local numbers = {3, tonumber(ARGV[1]), 2}
table.sort(numbers, is_less)
return numbers
""",
    "a call that the next line continues": """
local function bad(text)
  if text == '' then
    return 'empty'
  end
end
local refusal = bad(ARGV[1])
  or #ARGV[1] > 1 and 'long'
return refusal or 'good'
""",
    "a call that continues the line before": """
local function bad(text)
  return #text > 1 and 'long'
end
local refusal =
  bad(ARGV[1])
return refusal or 'good'
""",
    "a result that nobody takes and that goes on": """
local calls = {}
local function hit()
  calls[#calls + 1] = 'hit'
  return true
end
local function first(text)
  local known = #text > 1
  return known or
    hit()
end
first(ARGV[1])
return calls
""",
    "a name that a function at the call takes": """
local slot = 'file'
local function mark(text)
  return text .. slot
end
local function each(visit)
  return visit('given') .. visit('twice')
end
return each(function(slot)
  local word = mark(ARGV[1])
  return word
end)
""",
    "a function inside": """
local function longest(text)
  local function size(word)
    return #word
  end
  return size(text) + size('a')
end
local number = longest(ARGV[1])
return number
""",
    "two statements in a line": """
local function sign(number)
  if number < 0 then return 'minus' end
  return 'plus'
end
local word = sign(tonumber(ARGV[1]))
return word
""",
}


@pytest.mark.parametrize("argument", ["0", "1", "12"])
@pytest.mark.parametrize(
    "text",
    [*MOVED.values(), *MOVED_IN_PART.values(), *KEPT.values()],
    ids=[*MOVED, *MOVED_IN_PART, *KEPT],
)
def test_a_script_answers_the_same(store, text, argument):
    assert store.client.eval(inline_single_calls(text), 0, argument) == store.client.eval(
        text, 0, argument
    )


@pytest.mark.parametrize("text", MOVED.values(), ids=MOVED)
def test_a_function_with_a_single_call_is_inlined_at_that_call(text):
    assert "local function" not in inline_single_calls(text)


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_function_that_cannot_be_moved_stays(text):
    assert inline_single_calls(text) == text


def test_the_scripts_of_a_tasks_life_make_few_functions():
    """Each function costs a thousand instructions and more in every run of a script."""
    most = {"confirm": 1, "start": 2, "finish": 3, "release": 7, "take": 18, "submit": 16}
    made = {
        script.verb: script.text.count("\nlocal function ")
        for script in ALL_SCRIPTS
        if script.verb in most
    }
    wrong = [
        f"{verb} makes {made[verb]}, not {number}"
        for verb, number in most.items()
        if made[verb] > number
    ]
    none_wrong("a step that a verb calls once, as a statement, costs nothing", wrong)
