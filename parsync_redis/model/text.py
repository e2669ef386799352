"""The lines of text that Redis stores about nodes, kinds, the leader and damage.

A line is read and written by its template. A template has fields in braces; a part in brackets may
be missing as a whole. FIELD_PATTERNS has the pattern of each field, so that a field looks the same
in every line. The scripts read and write the same lines, most of them in lua/lib; a test
(tests/store/model/test_text.py) compares both. Needs and offers have a module of their own,
model/needs.py.
"""

import re
from collections.abc import Mapping
from typing import Final

CAPACITY_WORD: Final = r"[a-z][a-z0-9_.@]*=\d{1,16}(?:\.\d{1,3})?"
"""An amount of a node's capacity, as a regular expression."""

FIELD_PATTERNS: Final[Mapping[str, str]] = {
    "ahead": r"-?\d{1,5}",
    "all": "[01]",
    "capacity": rf"(?:{CAPACITY_WORD}(?:,{CAPACITY_WORD})*\??|\?)",
    "at": r"\d{1,15}",
    "deadline": r"no deadline|deadline_s=\d{1,9}(?:\.\d{1,9})?",
    "drain": "[012]",
    "failed": r"\d{1,15}",
    "first": r"\d{1,8}",
    "head": r"\d{1,16}",
    "held": r"\d{1,15}",
    "inc": r"\d{1,15}",
    "kind": ".*",
    "labels": ".*",
    "length": r"\d{1,15}",
    "moved": r"\d{1,15}",
    "name": r"[A-Za-z0-9][A-Za-z0-9_.@-]*",
    "numbers": r"{0}(?: {0})*".format(r"(?:\w+=\d+->\d+|failover@\d+=[\w,]+)"),
    "offer": "slots=.*",
    "options": ".*",
    "partition": r"\d{1,4}",
    "reason": "(?s:.*)",  # an operator may have written it by hand, on several lines
    "runs": r"\d{1,15}",
    "score": r"[\d.e+-]+",
    "share": r"[01](?:\.\d{1,12})?",
    "since": r"\d{1,15}",
    "size": r"\d{1,15}",
    "slots": r"\d{1,5}",
    "span": r"\d{1,5}",
    "state": "up|suspect|leaving|down",
    "tail": r"\d{1,16}",
    "task": "[!-~]+",
    "tries": r"\d{1,15}",
    "until": r"\d{1,15}(?:,own)?(?:,over)?",
    "used": r"[01](?:\.\d{1,12})?",
    "work": r"\d{1,4}(?:\.\d{1,6})?",
    "waiting": r"[1-9]\d{0,14}",
    "where": r"\S+",
    "who": r"\S+",
    "why": ".*",
}
"""{field: pattern}."""


class LineTemplate:
    """The form of a stored line: it reads and writes lines by a template."""

    def __init__(self, template: str) -> None:
        self.template = template
        self._parts = [
            (part.strip("[]"), part.startswith("["))
            for part in re.split(r"(\[.*?\])", template)
            if part
        ]
        self._is_whole = not any(optional for _, optional in self._parts)
        pattern = "".join(
            f"(?:{_pattern(part)})?" if optional else _pattern(part)
            for part, optional in self._parts
        )
        self._text = re.compile(pattern, re.ASCII)
        self._bytes = re.compile(pattern.encode(), re.ASCII)

    def read(self, text: str) -> dict[str, str] | None:
        """Return {field: text} without missing fields; None for a text that is no such line."""
        match = self._text.fullmatch(text)
        if match is None:
            return None
        fields = match.groupdict()
        return (
            fields
            if self._is_whole
            else {field: value for field, value in fields.items() if value is not None}
        )

    def match(self, raw: bytes) -> re.Match[bytes] | None:
        """Return the match of a line in bytes, for readers of thousands of lines."""
        return self._bytes.fullmatch(raw)

    def write(self, **fields: object) -> str:
        """Return the line of these fields, without each bracketed part whose field is None."""
        written = []
        for part, optional in self._parts:
            if not optional or all(
                fields[field] is not None for field in re.findall(r"\{(\w+)\}", part)
            ):
                written.append(part.format_map(fields))
        return "".join(written)


def _pattern(part: str) -> str:
    """Return the pattern of a template's part, with each field as a named group."""
    words = re.split(r"\{(\w+)\}", part)
    return "".join(
        f"(?P<{word}>{FIELD_PATTERNS[word]})" if position % 2 else re.escape(word)
        for position, word in enumerate(words)
    )


NODE_LINE: Final = LineTemplate(
    "{state} inc={inc} drain={drain} first={first} span={span}[ ahead={ahead}]"
    "[ capacity={capacity}][ until={until}] score={score} {offer}"
)
"""A node's record in `nodes`: see model/node.py."""

COUNTER: Final = LineTemplate("inc={inc} moved={moved}[ since={since} down]")
"""A node's heartbeat counter in `alive`; once the node is down also the server's time (ms) of that.
"""

TERMS: Final = LineTemplate("{deadline}[: {reason}]")
"""The terms of a node's drain, in `notes`. The note of a suspect node is any other text."""

LEADER: Final = LineTemplate("{name} moved={moved}")
"""The leader's lease, in `leader`."""

DEALT: Final = LineTemplate("p{partition} slots={slots} score={score} {labels}")
"""A node in `dealt`: its partition, and what it adds to the sums there.

Only lua/verbs/deal_node.lua uses it.
"""

LOSS: Final = LineTemplate("{name} {numbers}")
"""A loss, in `losses`: who saw it, and what the server forgot.

numbers: counters that went back, and what a replica took over at which offset: 'submitted=150->120
p0=77->70 failover@4711=q3,p1'.
"""

BOOKING: Final = LineTemplate("from={since}[ at={at}] task={task} {kind}")
"""The booking of a node, in `bookings`: expected start, booking time, task id, kind.

See model/booking.py.
"""

DAMAGE: Final = LineTemplate("{who} {where} {size} {why}")
"""The first line of an entry of `quarantine`; behind it are the first bytes of what was damaged."""

DECLARED: Final = LineTemplate("{task} {options}")
"""A task name of an app with its declared options as JSON, in `names`; see model/apps.py."""

KIND_LINE: Final = LineTemplate("{waiting} {head} {tail}[ {reason}]")
"""A kind in `kinds`: the number of waiting tasks, first and last order, and the reason.

See model/kind.py.
"""

STREAK: Final = LineTemplate(
    "p{partition} {name} inc={inc} since={since} at={at} "
    "length={length} tries={tries} runs={runs} failed={failed} all={all}[ held={held}]"
)
"""A streak of failures of a node, a line of a name's field in `streaks`; see model/streak.py."""

USED_SHARE: Final = LineTemplate("used={used} share={share} work={work} at={at}")
"""The used share of a tenant, in `shares`; see model/used_share.py."""

TASK_NAME: Final = re.compile("[!-~]{1,255}")
"""The name of a task."""

LINES: Final[Mapping[str, LineTemplate]] = {
    name: line for name, line in globals().items() if isinstance(line, LineTemplate)
}
"""The table: every line by its name."""
