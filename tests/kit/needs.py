"""Read from the text of the scripts which command each calls on which kind of key.

The module relies on the house style of the scripts: a key is called by its kind (`slots`,
`pending`, `KEY.tasks`), the key of a task's rare fields `KEY.extra .. id` or `key`.
"""

import re
from collections.abc import Iterator

from parsync_redis.store.repair.repair import COMES_BACK
from parsync_redis.store.scripts.calls import ALL_SCRIPTS
from parsync_redis.store.scripts.scripts import Script, compose, lua_folder
from parsync_redis.wire.keys import CLUSTER_KINDS, NUMBERS, QUEUE_KINDS

_CALL = re.compile(
    r"(?:redis\.p?call|write_all|size_of)\(([^,()]+?)(?:, *([^,()]+?(?:\[[^\]]*\])?))?[,)]"
)
_READS = re.compile(r"(?<!function )read_(?:fields|list|counts)\(")
_CLUSTER = {*CLUSTER_KINDS, "stats"}
_QUEUE = {*QUEUE_KINDS, "extra:", "pending:"} - {"meta", "changed", "policy"}
_REPAIRED = ("slots", "left", "nodes", "alive")


def family(script: Script) -> str:
    """Return the family of a script's keys, all of one hash tag: q, p, or '' for those of the whole
    cluster.
    """
    return (
        "q"
        if script.verb == "fix_shards" or _QUEUE & {*script.keys}
        else ""
        if _CLUSTER & {*script.keys}
        else "p"
    )


def uses(script: Script) -> set[tuple[str, str]]:
    """Return (command, kind) of each call: ('hset', 'q:tasks'), ('spublish', 'channel'), ('time',
    '').
    """
    return {(command.lower(), kind) for command, kind in _uses(script)}


def _uses(script: Script) -> Iterator[tuple[str, str]]:
    # before functions move to where they are called: write_all is a word of this reading
    whole = compose(script.header, lua_folder(), inline=False)
    text = (
        re.sub(r"--.*", "", whole)
        .replace("redis_call(", "redis.call(")
        .replace("redis_pcall(", "redis.pcall(")
    )
    text = _READS.sub("redis.call('HMGET', ", text)
    for words, argument in _CALL.findall(text):
        for command in re.findall(r"'(\w+)'", words):
            if command == "TYPE":
                continue  # of every key of a script: granted with EVALSHA
            if argument == "any":
                yield from ((command, kind) for kind in _any(script, command))
            elif command == "SPUBLISH":
                yield command, "channel"
            elif not argument.startswith("KEY.") or argument[4:].split(" ")[0] in {
                k.rstrip(":") for k in (*script.keys, *script.also)
            }:
                # a library's KEY.later is not called where it is none
                yield command, _kind(script, argument)
    for command, name in (("HSCAN", "HASHES"), ("ZSCAN", "SETS")):
        # of look_over, which scans the index that its call names
        for names in re.findall(rf"^local {name} = '([^']*)'", text, re.MULTILINE):
            yield from ((command, _kind(script, index)) for index in names.split())
    for target in re.findall(r"'RENAME', \w+, (\w+)\)", text):
        yield "RENAME", _kind(script, target)


def _any(script: Script, command: str) -> list[str]:
    """Return the kinds of key that a command is called on which takes more than one: a library's,
    or a repair's.
    """
    where = family(script)
    if script.verb == "discard":
        counted = [kind for kind in COMES_BACK if kind in NUMBERS]
        kinds = {"DEL": [*COMES_BACK, "stats"], "HGET": counted}.get(command, [])
        more = ["q:extra", "q:pending", "p:inbox"] if command == "DEL" else []
        return [f"{'q' if kind in QUEUE_KINDS else ''}:{kind}" for kind in kinds] + more
    if command == "HMGET":
        return [f"{where}:{key}" for key in script.keys if key in NUMBERS]
    return [f"{where}:{kind}" for kind in (script.keys if command == "DEL" else _REPAIRED)]


def _kind(script: Script, argument: str) -> str:
    where = family(script)
    argument = argument.removesuffix("_key")  # of a library's parameter: left_key, free_key
    if not argument:
        return ""
    if argument == "inbox":
        return "p:inbox"
    if argument == "holders" or argument.startswith("KEY.holders .."):
        return "q:holders"
    if argument == "key" or argument.startswith(("KEY.extra ..", "extra_prefix ..")):
        return "q:extra"
    # of a kind: pending, queue.pending, KEY.pending .. kind
    if argument.endswith("pending") or argument.startswith("KEY.pending .."):
        return "q:pending"
    if re.match(r"KEYS\[.*[a-z]", argument):  # a key behind the named keys
        return f"{where}:{script.keys[-1].rstrip('*')}"
    kind = (
        script.keys[int(argument[5:-1]) - 1]
        if argument.startswith("KEYS[")
        else argument.removeprefix("KEY.")
    )
    assert kind in (*script.keys, *script.also), (
        f"{script.verb}.lua calls a command on {argument!r}, which is none of its keys"
    )
    return f"{where}:{kind}"


SCRIPTS = {script.verb: script for script in ALL_SCRIPTS}
