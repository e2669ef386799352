"""The table of task options, and the checked options of a task.

A new option is a row of OPTIONS and a field of TaskOptions here. From the row come its flag of
`parsync submit` and the names that the client, `parsync={...}`, the rules [place] and a task's
declaration may use. A stored option (`stored`) is also a field of TaskStatus. It is a word of the
kind (model/kind.py), or a word in the rows of lua/verbs/submit.lua and in
lua/lib/task/resubmission.lua. docs/options.md has a line for
each option, docs/keys.md for each stored option. tests/unit/test_options.py finds omissions.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ..errors import InvalidInput
from .account import TENANT_RULE, are_accounts, limits_text
from .apart import APART_RULE, held_by, is_word
from .ids import MAX_ID, close_to, shown
from .limits import MAX_SLOTS
from .needs import UNINTERRUPTED, Resources, queue_label
from .preferences import preferences_text
from .taints import tolerance

MAX_SECONDS: Final = 3e11
"""The longest countdown or expiry in seconds, about 9,500 years: Celery's datetimes end there."""

ONE_SLOT: Final = Resources.of()


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a task.

    default: the value without the option; None counts as not set if it is the default.
    valid, rule: the check of a value, and the rule in words.
    flag, help: of `parsync submit`.
    value: the type of the flag's value; Mapping for NAME=VALUE (repeat), list for one of several
        texts (repeat).
    example: a value other than the default.
    stored: whether the task's record keeps the option in a field of that name, so that a retry and
        a requeue have it too. An option that is not stored matters at the submit only, or is part
        of the needs.
    celerys: whether Celery has an option of that name, which goes first; only the client takes
        parsync's.
    """

    name: str
    default: Any
    valid: Callable[[Any], bool]
    rule: str
    flag: str
    value: type
    help: str
    example: Any
    stored: bool = False
    celerys: bool = False

    def check(self, value: object) -> Any:
        """Return the checked value; raises InvalidInput with the rule."""
        if value is None and self.default in (None, ""):
            return self.default
        if not self.valid(value):
            raise InvalidInput(f"{self.name}={shown(value)} is not valid: it must be {self.rule}")
        return value


def unknown_option(
    noun: str, name: object, valid_words: Iterable[str], value: object = None
) -> InvalidInput:
    """Return the error of an unknown option, with a suggestion.

    noun: 'option' or 'parsync option'.
    value: the option's value; if it begins with a digit, the option may be meant as a resource.
    """
    words = list(valid_words)
    hint = f"; did you mean {close}?" if (close := close_to(name, words)) else ""
    if not hint and isinstance(name, str) and str(value)[:1].isdigit() and "resources" in words:
        amount = {name.removeprefix("num_").removesuffix("s"): value}
        hint = f"; did you mean resources={shown(amount)}?"
    return InvalidInput(f"unknown {noun} {shown(name)}: known are {', '.join(words)}{hint}")


class Strategy(StrEnum):
    """The weight of freshness against score in a placement; see placement/strategy.py."""

    LATENCY = "latency"
    QUALITY = "quality"
    ADAPTIVE = "adaptive"


def is_seconds(value: object) -> bool:
    """Return whether a value is a number of seconds above 0 and below MAX_SECONDS."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MAX_SECONDS
    )


def _is_whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    )


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def is_tenant(value: object) -> bool:
    """Return whether a value is the name of a tenant, or '' for none."""
    return isinstance(value, str) and are_accounts(value, "")


def _are_limits(value: object) -> bool:
    return _is_list_of_texts([*value] if isinstance(value, Mapping) else value)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def _is_list_of_preferences(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(rule, str | Mapping) for rule in value
    )


OPTIONS: Final = (
    Option(
        "slots",
        1,
        _is_whole(1, MAX_SLOTS),
        f"a whole number from 1 to {MAX_SLOTS:,}",
        "--slots",
        int,
        "Slots of one node that it holds (1).",
        2,
    ),
    Option(
        "resources",
        {},
        _is_mapping,
        'a mapping from names to amounts, {"mem": "4GiB"}',
        "--resource",
        Mapping,
        "An amount that it holds: mem=4GiB (repeat).",
        {"mem": "4GiB"},
    ),
    Option(
        "require",
        {},
        _is_mapping,
        'a mapping from labels to values, lists of values or {OPERATOR: value}, {"gpu_model": '
        '"a100"}',
        "--require",
        Mapping,
        "A label that it needs: gpu_model=a100, 'zone in a,b', 'vram_gb>=24' (repeat).",
        {"gpu_model": "a100"},
    ),
    Option(
        "tolerate",
        [],
        _is_list_of_texts,
        'a list of taints, ["spot"]',
        "--tolerate",
        list,
        "A taint of nodes that the task tolerates: spot (repeat).",
        ["spot"],
    ),
    Option(
        "apart",
        "",
        is_word,
        f"{APART_RULE}: tasks with the same word are never on one node; "
        "apart by other labels does not exist",
        "--apart",
        str,
        "A word: tasks with the same word never run on one node.",
        "web",
    ),
    Option(
        "near",
        "",
        lambda value: isinstance(value, str) and len(value) <= MAX_ID,
        "the id of a task that runs or has run",
        "--near",
        str,
        "The id of a task: go to the node where that one runs or ran last.",
        "a81f",
    ),
    Option(
        "priority",
        0,
        _is_whole(0, 9),
        "a whole number from 0 to 9, larger first",
        "--priority",
        int,
        "0 to 9, larger first (0).",
        9,
        stored=True,
    ),
    Option(
        "strategy",
        "",
        lambda value: value in ("", *Strategy),
        f"one of {', '.join(Strategy)}",
        "--strategy",
        str,
        "latency, quality or adaptive; else the schedulers' own.",
        "quality",
        stored=True,
    ),
    Option(
        "prefer",
        [],
        _is_list_of_preferences,
        'a list of rules in order, ["zone=a", "pack"], of rules or mappings {"zone": {"a": 0}}',
        "--prefer",
        list,
        "A soft rule, the first outweighs later ones: zone=a, pack, spread:zone (repeat).",
        ["zone=a", "pack"],
        stored=True,
    ),
    Option(
        "wait_for_capacity",
        False,
        lambda value: isinstance(value, bool),
        "True or False",
        "--wait-for-capacity",
        bool,
        "Wait for a node that fits.",
        True,
    ),
    Option(
        "max_starts",
        None,
        _is_whole(1, 1000),
        "a whole number from 1 to 1000",
        "--max-starts",
        int,
        "Lost starts after which it is dead; 1: at most once.",
        2,
        stored=True,
    ),
    Option(
        "avoid_last",
        True,
        lambda value: isinstance(value, bool),
        "True or False",
        "--avoid-last",
        bool,
        "When it runs again, prefer a node that it did not run on last (yes).",
        False,
        stored=True,
    ),
    Option(
        "interruptible",
        True,
        lambda value: isinstance(value, bool),
        "True or False",
        "--interruptible",
        bool,
        "Take nodes that may leave with a notice of seconds (yes).",
        False,
    ),
    Option(
        "tenant",
        "",
        is_tenant,
        TENANT_RULE,
        "--tenant",
        str,
        "Whose share it counts to: research/anna.",
        "research/anna",
        stored=True,
    ),
    Option(
        "limits",
        [],
        _are_limits,
        'a list of names, ["stripe", "customer:{customer_id}"], or a mapping from names to units, '
        '{"licence": 2}',
        "--limit",
        list,
        "A limit under which it runs: stripe, or licence*2 for two units (repeat).",
        ["stripe"],
        stored=True,
    ),
    Option(
        "expires",
        None,
        is_seconds,
        "a number of seconds above 0",
        "--expires",
        float,
        "Seconds after which it is not started.",
        60.0,
        celerys=True,
    ),
)
"""Every option; docs/options.md has a table of what they mean, in this order."""

NAMES: Final = tuple(option.name for option in OPTIONS)
CLIENT_NAMES: Final = tuple(option.name for option in OPTIONS if not option.celerys)
"""The options that the client takes as parsync's, because Celery has no such option."""

STORED: Final = tuple(option.name for option in OPTIONS if option.stored)
"""The names of stored options: a task's record has a field for each."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The checked options of one task.

    The options come from `parsync={...}` in Celery, keyword arguments of the client, or flags of
    the CLI.

    needs: slots, resources, require, tolerate, apart and interruptible.
    near: the task to be near to; submit replaces it by a label in the needs.
    expires: seconds, None for never; only in a Celery task's own options, because all other callers
        say `expires` as Celery does.
    max_starts: None for the cluster's value.
    prefer: the soft rules, as a kind has them, 'zone:a,pack'.
    tenant: '' for none.
    limits: as a kind has them, 'customer:7,stripe*2'.
    """

    needs: Resources = ONE_SLOT
    near: str = ""
    priority: int = 0
    strategy: str = ""
    prefer: str = ""
    wait_for_capacity: bool = False
    expires: float | None = None
    max_starts: int | None = None
    avoid_last: bool = True
    tenant: str = ""
    limits: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, queue: str = "") -> "TaskOptions":
        """Return the checked options; raises InvalidInput with the known names.

        options: without parameters of the task, which `fill` has replaced.
        queue: the Celery queue that the task was routed to; only nodes that consume the queue are
            candidates.
        """
        if not options and not queue:
            return DEFAULT_OPTIONS
        options = options or {}
        if not isinstance(options, Mapping):
            raise InvalidInput(f"parsync options must be a mapping, not {type(options).__name__}")
        if unknown := [name for name in options if name not in NAMES]:
            raise unknown_option("parsync option", unknown[0], NAMES, options[unknown[0]])
        checked = {
            option.name: option.check(options.get(option.name, option.default))
            for option in OPTIONS
        }
        checked["limits"] = limits_text(checked["limits"])
        checked["prefer"] = preferences_text(checked["prefer"])
        reserved = [queue_label(queue)] if queue else []
        reserved += tolerance(checked.pop("tolerate"))
        needs = Resources.needed(
            checked.pop("slots"), checked.pop("resources"), checked.pop("require"), reserved
        )
        if apart_amounts := held_by(checked.pop("apart")):
            needs = Resources.made(needs.slots, [*needs.amounts, *apart_amounts], needs.labels)
        if not checked.pop("interruptible") and UNINTERRUPTED not in needs.labels:
            needs = Resources.made(needs.slots, needs.amounts, [*needs.labels, UNINTERRUPTED])
        return cls(needs, **checked)

    @classmethod
    def stored(cls, needs: Resources, record: object) -> "TaskOptions":
        """Return the options that a task's record keeps.

        record: an object with an attribute for each name in STORED.
        """
        return cls(needs, **{name: getattr(record, name) for name in STORED})


DEFAULT_OPTIONS: Final = TaskOptions()
