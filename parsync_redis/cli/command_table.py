"""The table of commands, and the words by which a command line names them."""

from collections.abc import Sequence
from functools import cache
from typing import Final

COMMANDS: Final = {
    "cli.find": {"tasks list": "List tasks: first those that have not ended."},
    "cli.tasks": {
        "tasks show": "Show a task: its state, its place, why it waits, and the time of each step.",
        "tasks submit": "Submit a task and print its id.",
        "kinds list": (
            "Show what waits, by kind: how many tasks of equal name, needs and strategy, and why."
        ),
        "kinds times": (
            "Show how long tasks of each name run, by node class too: count, mean, 95th percentile."
        ),
    },
    "cli.ending": {
        "tasks cancel": (
            "Cancel tasks by their ids, or all of a kind, name or state: a running one is "
            "asked to end."
        ),
        "tasks purge": "Delete the records of tasks that have ended.",
        "tasks requeue": "Let dead tasks, which lost as many starts as they may, run again.",
    },
    "cli.explain": {
        "tasks plan": "Say where a task would go, without submitting it.",
        "tasks explain": (
            "Say why a task waits, what keeps each node, who holds what it needs, and when it "
            "may start."
        ),
    },
    "cli.top": {"top": "Show the cluster and draw it again every second, until q."},
    "cli.cluster": {
        "nodes list": "List nodes: state, slots, what is left of their resources, taints.",
        "nodes show": (
            "Show a node: what runs there and for how long, what is left, what failed last."
        ),
        "nodes drain": (
            "Give a node no new tasks, also after a restart; its runs go on, up to a deadline "
            "if any."
        ),
        "nodes undrain": "Give tasks to a drained or suspect node again.",
        "schedulers": (
            "List schedulers: which is leader, which is alive, and the statistics of each."
        ),
        "partitions": "List partitions, and how evenly nodes, scores and labels are dealt to them.",
    },
    "cli.policy": {
        "policy show": "Show the policy as it was written, and the limits that apps declare.",
        "policy apply": (
            "Let the cluster have the policy of a file, whole; a file with a mistake changes "
            "nothing."
        ),
        "policy check": (
            "Say what a file would change, and which waiting tasks it would keep waiting."
        ),
        "policy set": ("Set values of the policy, all or none; comments of the document are lost."),
        "policy history": ("Show the last ten versions of the policy: who changed what, and when."),
        "limits": (
            "List limits: what is held of what is allowed, and what waits; or who holds one."
        ),
        "tenants": (
            "List tenants: their shares of the nodes, what they hold, and what waits for how long."
        ),
    },
    "cli.events": {
        "events": (
            "Show what happened out of the ordinary: to tasks, nodes, schedulers and the cluster."
        ),
    },
    "cli.doctor": {
        "doctor check": (
            "Check server, scripts, schedulers, ticks and nodes; each line has its fix."
        ),
        "doctor repair": (
            "Find damaged keys and rebuild them from what is left, as the leader does bit by bit."
        ),
        "doctor quarantine": (
            "Damaged or foreign values that a process met in the state: list, show, clear."
        ),
    },
    "cli.run": {"scheduler": "Run a scheduler until SIGTERM or Ctrl-C."},
    "cli.dev": {
        "dev": "Run a server, schedulers and workers of an app in this terminal, until Ctrl-C."
    },
    "serve.command": {
        "serve run": (
            "Show the cluster over HTTP: pages, metrics for Prometheus, health, and a JSON API."
        ),
        "serve token": "Make a token for a submitter, and its hash for the file of submitters.",
        "serve password": "Make an operator's line for the file of operators.",
    },
    "cli.acl": {
        "acl": (
            "Print Redis ACL lines: a login for each role, with no right that the role does "
            "not need."
        ),
    },
    "cli.lua": {"lua": "The Lua scripts as the server gets them: list, show."},
}
"""Commands by module of parsync_redis: full name (noun, verb) and first sentence of the help."""

NOUNS: Final = {
    "tasks": "List tasks; show, submit, cancel, requeue, purge, plan and explain them.",
    "kinds": "List what waits, by kind; show how long the tasks of each name run.",
    "nodes": "List nodes, or show one; drain and undrain them.",
    "policy": "Show who goes first, and how much at once; apply, check and set it.",
    "doctor": (
        "Check the cluster, and say how to fix what is wrong; repair, and look at the quarantine."
    ),
    "serve": "Show the cluster over HTTP; make tokens and passwords for it.",
}
"""Nouns that have verbs, and their help. Without a verb, a noun does its first row of COMMANDS."""

SHORT_WORDS: Final = {
    "submit": "tasks submit",
    "status": "tasks show",
    "explain": "tasks explain",
    "cancel": "tasks cancel",
    "plan": "tasks plan",
}
"""Words for the commands that people type most, shown in the help."""

HIDDEN_WORDS: Final = {
    "purge": "tasks purge",
    "dead": "tasks list --state dead",
    "dead list": "tasks list --state dead",
    "dead show": "tasks show",
    "dead requeue": "tasks requeue",
    "demand": "kinds list",
    "names": "kinds times",
    "drain": "nodes drain",
    "undrain": "nodes undrain",
    "repair": "doctor repair",
    "quarantine": "doctor quarantine",
    "serve-token": "serve token",
    "serve-password": "serve password",
}
"""Words of earlier versions: they work, and the help does not show them."""

PANELS: Final = {
    "Tasks": ("submit", "status", "explain", "cancel", "plan", "tasks", "kinds"),
    "Who goes first": ("policy", "limits", "tenants"),
    "Cluster": ("top", "nodes", "schedulers", "partitions", "events", "doctor"),
    "Processes": ("scheduler", "dev", "serve"),
    "Server": ("acl", "lua"),
}
"""The groups of `parsync --help`, in order; each fits on a screen."""

ADDED_PANEL: Final = "Added by other distributions"

ENTRY_POINTS: Final = "parsync_redis.commands"
"""The group of entry points by which other distributions add commands.

An entry point names a table in the form of COMMANDS, with modules by their full names.
"""

ELSEWHERE: Final = dict.fromkeys(("bench", "simulate", "replay"), "parsync-lab")
"""Commands of this project's other distributions: the name of the distribution."""

DEFAULT_WATCH_S: Final = "2"
"""Seconds between two drawings of `--watch` without a number."""


@cache
def added_commands() -> dict[str, dict[str, str]]:
    """Return the commands that other installed distributions add, in the form of COMMANDS."""
    from importlib.metadata import entry_points

    return {
        module: commands
        for entry in entry_points(group=ENTRY_POINTS)
        for module, commands in entry.load().items()
    }


def all_commands() -> list[str]:
    """Return the full names of all commands: first those of parsync_redis."""
    return [
        name for commands in (*COMMANDS.values(), *added_commands().values()) for name in commands
    ]


def verbs_of(noun: str) -> dict[str, str]:
    """Return the verbs of a noun, in order, with the first sentence of the help of each."""
    return {
        name.removeprefix(f"{noun} "): sentence
        for commands in COMMANDS.values()
        for name, sentence in commands.items()
        if name.startswith(f"{noun} ")
    }


def first_verb(noun: str) -> str:
    """Return the verb that runs when the command line has a noun and no verb."""
    return next(iter(verbs_of(noun)))


def full_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with its command's full name: noun and verb.

    "status x" becomes "tasks show x", "nodes" becomes "nodes list". Unknown words are returned as
    they are, as is "tasks --help".
    """
    for length in (2, 1):
        name = (SHORT_WORDS | HIDDEN_WORDS).get(" ".join(words[:length]))
        if name is not None:
            return [*name.split(), *words[length:]]
    if not words or words[0] not in NOUNS:
        return list(words)
    noun, *arguments = words
    if not arguments:
        return [noun, first_verb(noun)]
    if arguments[0] == "--help" or arguments[0] in verbs_of(noun):
        return list(words)
    if arguments[0].startswith("-"):
        return [noun, first_verb(noun), *arguments]
    # A word of its own is a node's name; a word before an argument is a verb with a typing error.
    if noun == "nodes" and (len(arguments) == 1 or arguments[1].startswith("-")):
        return [noun, "show", *arguments]
    return list(words)


def fill_watch(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, with a number behind each `--watch`."""
    filled: list[str] = []
    for position, word in enumerate(words):
        if word == "--":
            return [*filled, *words[position:]]
        filled.append(word)
        following = "".join(words[position + 1 : position + 2])
        if word == "--watch" and not following.replace(".", "", 1).isdigit():
            filled.append(DEFAULT_WATCH_S)
    return filled
