"""Make docs/api.md from the public names: signatures, docstrings, and the examples of
examples.md.
"""

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from functools import cached_property

import parsync_redis
from parsync_redis import Settings
from tests.kit.documents import Document, tables

INTERNAL = {
    "Parsync": "submit revoke purge options_of fill move_to",
    "ParsyncClient": "declared send requeue_dead",
    "AsyncParsyncClient": "declared send requeue_dead",
    "TaskStatus": "of",
    "Event": "read stream entry order",
    "Settings": "settings_customise_sources",
}
"""Methods that only parsync's own worker, publisher and store call; names of earlier versions."""

HEAD = """\
# API reference

Every public name of `parsync_redis`, from the docstrings of the code. The examples run in `tests/docs/test_api.py`, in this
order, with a scheduler and a worker of this module as node `n1`:

"""

GROUPS = {
    "In a Celery app": ["Parsync"],
    "Without the app": ["ParsyncClient", "AsyncParsyncClient"],
    "Values": [
        "Event",
        "KindView",
        "NameView",
        "NodeState",
        "NodeView",
        "PartitionView",
        "TaskState",
        "TaskStatus",
    ],
    "Settings": ["Settings"],
}


def members(name: str) -> list[str]:
    """Return the public methods and properties that a public class defines itself."""
    cls = getattr(parsync_redis, name)
    hidden = {*INTERNAL.get(name, "").split(), *getattr(cls, "__dataclass_fields__", ())}
    if name == "AsyncParsyncClient":
        hidden |= set(members("ParsyncClient"))  # tests/system/submit compares the two
    if name == "Settings":
        hidden |= {"model_config", *Settings.model_fields}
    own = [m for base in ours(cls) for m in vars(base) if not m.startswith("_") and m not in hidden]
    return [member for member in dict.fromkeys(own) if not isinstance(getattr(cls, member), cls)]


def ours(cls: type) -> list[type]:
    """Return a class, and its bases that hold a part of its methods."""
    return [
        base
        for base in cls.__mro__
        if base is cls or base.__module__.startswith("parsync_redis.client")
    ]


def entries() -> Iterator[str]:
    """Yield every public name, each class followed by its members."""
    errors = sorted(
        set(parsync_redis.__all__) - {name for names in GROUPS.values() for name in names}
    )
    for name in (*(name for names in GROUPS.values() for name in names), *errors):
        yield name
        yield from (f"{name}.{member}" for member in members(name))


def find(entry: str) -> object:
    """Return the object of an entry, unwrapped: 'ParsyncClient.submit' is a function."""
    name, _, member = entry.partition(".")
    found: object = getattr(parsync_redis, name)
    if member:
        found = inspect.getattr_static(found, member)
        found = (
            getattr(found, "__func__", None)
            or getattr(found, "fget", None)
            or getattr(found, "func", found)
        )
    return found


def parameters(entry: str) -> list[inspect.Parameter]:
    """Return the parameters of a method, or of a class that users make."""
    found = find(entry)
    if isinstance(vars(parsync_redis).get(entry.partition(".")[0]), type) and inspect.isfunction(
        found
    ):
        return list(inspect.signature(found).parameters.values())[1:]
    if entry in ("Parsync", "ParsyncClient", "AsyncParsyncClient"):
        return list(inspect.signature(vars(found)["__init__"]).parameters.values())[1:]
    return []


def signature(entry: str) -> str:
    """Return an entry as code."""
    name, _, member = entry.partition(".")
    value = inspect.getattr_static(getattr(parsync_redis, name), member, None) if member else None
    if isinstance(value, property | cached_property) or (not member and not parameters(entry)):
        return entry
    found = [str(one.replace(annotation=one.empty)) for one in parameters(entry)]
    keyword = next(
        (at for at, one in enumerate(parameters(entry)) if one.kind is one.KEYWORD_ONLY), None
    )
    if keyword is not None:
        found.insert(keyword, "*")
    return f"{entry}({', '.join(found)})"


def text_of(entry: str) -> str:
    """Return the docstring; for Settings and values with a table of their fields."""
    found = find(entry)
    text = inspect.cleandoc(str(found.__doc__)) + "\n"
    if found is Settings:
        rows = {
            row[2].strip("`"): row
            for row in tables(Document("docs/options.md").text)
            if row[1].startswith("`PARSYNC_")
        }
        lines = [
            f"| `{name}` | {rows[name][3]} | {rows[name][4]} |" for name in Settings.model_fields
        ]
        return text + "\n| setting | default | meaning |\n|---|---|---|\n" + "\n".join(lines) + "\n"
    if isinstance(found, type) and issubclass(found, enum.Enum):
        return text + f"\n{', '.join(f'`{one.value}`' for one in found)}\n"
    if isinstance(found, type) and dataclasses.is_dataclass(found):
        fields = ", ".join(
            f"`{field.name}: {field.type}`".replace("typing.", "")
            for field in dataclasses.fields(found)
        )
        return f"{text}\nFields: {fields}.\n"
    return text


def examples() -> dict[str, str]:
    """Return the text of each section of examples.md, by the entry that it is about."""
    sections = re.split(
        r"^## (\S+)\n", Document("tests/docs/examples.md").text, flags=re.MULTILINE
    )[1:]
    return {
        name: text.strip() + "\n" for name, text in zip(sections[::2], sections[1::2], strict=True)
    }


def page() -> str:
    """Return the text of docs/api.md."""
    made = HEAD
    shown = examples()
    made += shown["proj"] + "\n"
    groups = {
        **GROUPS,
        "Errors": sorted(
            set(parsync_redis.__all__) - {n for names in GROUPS.values() for n in names}
        ),
    }
    for heading, names in groups.items():
        made += f"## {heading}\n\n"
        for entry in entries():
            if entry.partition(".")[0] in names:
                made += (
                    f"{'####' if '.' in entry else '###'} "
                    f"`{signature(entry)}`\n\n{text_of(entry)}\n{shown[entry]}\n"
                )
    return made.rstrip() + "\n"
